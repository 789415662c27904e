"""Step by step along one text that both models read."""

from typing import TYPE_CHECKING

from shoal.core.records import Curve
from shoal.diagnosis.records import TeacherForced
from shoal.report.diagnosis.marks import GAPS
from shoal.report.marks import WIDTH, Stroke, curve_ends, draw_curve, edge_note, fit, set_scale
from shoal.report.style import ACCENT, light_grid, new_figure, styled
from shoal.report.words import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def steps_figure(forced: TeacherForced) -> "Figure | None":
    """Draw 1 - cosine in each space and the divergence at each step of the dense model's text.

    Returns:
        None where no step was compared.
    """
    gaps = {name: forced.steps[name] for name in GAPS if name in forced.steps}
    kl = forced.steps.get("kl")
    if kl is None and not gaps:
        return None
    with styled():
        figure = new_figure(WIDTH, 3.5)
        panels = bool(gaps) + (kl is not None)
        if gaps:
            axes = figure.add_subplot(1, panels, 1)
            curves = [(GAPS[name], curve) for name, curve in gaps.items()]
            _panel(axes, curves, "Angles, both reading the dense text", "1 − cosine")
            handles, labels = axes.get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower left", ncols=4, fontsize=8)
        if kl is not None:
            axes = figure.add_subplot(1, panels, panels)
            mean = forced.overall.get("kl")
            told = "" if mean is None else f": {number(mean.value)} on average"
            _panel(
                axes,
                [(Stroke("KL", ACCENT), kl)],
                f"KL at each step{told}",
                "KL(dense || other), nats",
            )
    return figure


def _panel(axes: "Axes", curves: list[tuple[Stroke, Curve]], title: str, what: str) -> None:
    values = [v for _, curve in curves for v in curve.value]
    # The ends of intervals of single steps may be tiny, and need not all be seen.
    scale = fit(values if max(len(c.steps) for _, c in curves) > 1 else curve_ends([curves[0][1]]))
    for stroke, curve in curves:
        draw_curve(axes, curve, scale, stroke)
    set_scale(axes, scale)
    set_steps(axes, [curve for _, curve in curves])
    axes.set_title(title)
    axes.set_ylabel(what + edge_note(scale, values))


def set_steps(axes: "Axes", curves: list[Curve]) -> None:
    """Steps along the axis, and how many runs are behind the first and the last."""
    from matplotlib.ticker import MaxNLocator

    last = max((c.steps[-1] for c in curves if c.steps), default=1)
    axes.set_xlim(0.5, last + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))
    counts = [(c.count[0], c.count[-1]) for c in curves if c.count]
    told = ""
    if counts:
        first, final = max(n for n, _ in counts), min(n for _, n in counts)
        told = f"; {first} prompt{'s' * (first > 1)}"
        told += "" if first == final else f", {final} at the last"
    axes.set_xlabel(f"token after the prompt{told}")
    light_grid(axes)
