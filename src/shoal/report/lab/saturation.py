"""How large predictions get, against the values that they should reach."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shoal.lab.records import Shifts
from shoal.report.lab.marks import BEST, DENSE, panel_legend, panels, sigma_axis, sigma_label
from shoal.report.lab.reading import in_order, trained_shift
from shoal.report.marks import edge_note, fit, literal, set_scale
from shoal.report.style import GRID, INK, light_grid, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def saturation_figure(models: Sequence[Shifts]) -> "Figure | None":
    """Draw the largest prediction of the dense model and of BEST by sigma.

    Returns:
        None where there is no task.
    """
    shown = [m for m in models if any(s.saturation.ranges for s in m.shifts)]
    if not shown:
        return None
    with styled():
        figure, drawn = panels(len(shown), 2, 2.4, extra=0.5)
        for place, (axes, model) in enumerate(zip(drawn, shown, strict=True)):
            shifts = in_order(model.shifts)
            x = [s.sigma for s in shifts]
            lines = {
                name: [r.largest if (r := s.saturation.ranges.get(name)) else None for s in shifts]
                for name in ("dense", "best")
            }
            truth = [s.saturation.largest_y for s in shifts]
            bound = next((s.saturation.bound for s in shifts if s.saturation.bound), None)
            every = [*truth, *lines["dense"], *lines["best"], bound]
            scale = fit(every, log=True)
            if bound is not None:
                axes.axhspan(
                    scale.low,
                    scale.place(bound),
                    color=GRID,
                    alpha=0.6,
                    linewidth=0,
                    zorder=0,
                    label="values that training could show",
                )
            axes.plot(
                x, scale.places(truth), color=INK, linewidth=1.4, linestyle=(0, (4, 2)),
                label="largest |y| that is asked for",
            )  # fmt: skip
            for name, stroke in (("dense", DENSE), ("best", BEST)):
                axes.plot(
                    x,
                    scale.places(lines[name]),
                    color=stroke.colour,
                    marker=stroke.marker,
                    markersize=4,
                    linewidth=1.3,
                    label=f"largest |prediction|, {stroke.label}",
                )
            set_scale(axes, scale, small=True)
            trained = trained_shift(model)
            sigma_axis(axes, x, trained.sigma if trained else None)
            light_grid(axes)
            axes.set_title(literal(model.model))
            axes.set_xlabel(sigma_label(shifts), fontsize=8)
            note = edge_note(scale, every)
            axes.set_ylabel(("size" if place % 2 == 0 else "") + note, fontsize=8)
        panel_legend(figure, drawn, 3)
    return figure
