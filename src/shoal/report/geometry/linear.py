"""What each block does to distances, how many directions it adds, how well a map tells it."""

from collections.abc import Callable, Sequence
from math import isfinite, nan
from typing import TYPE_CHECKING, Any

from shoal.geometry.records import Geometry, Linear
from shoal.report.geometry.marks import SIDES, class_title, classes, shade, whole_ticks
from shoal.report.marks import GREY, WIDTH, Scale, fit_close, plain_number, set_scale
from shoal.report.style import INK, light_grid, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOWEST = -0.5
"""R^2 below which a dot stands at the lower edge: how bad a useless fit is tells nothing."""

Read = Callable[[Linear], float]
ROWS: tuple[tuple[str, Read, Read | None], ...] = (
    ("gain", lambda r: r.measured_gain, lambda r: r.data_gain),
    ("effective rank of\nthe update on the data", lambda r: r.data_effective_rank, None),
    ("held-out R²", lambda r: r.r2, lambda r: r.r2_update),
)
"""Label, what is drawn in full, and what is dotted."""

DOTTED: Any = (0, (1, 1.3))


def linear_figure(found: Geometry) -> "Figure | None":
    """Draw gain, rank and R^2 by block on both tasks, a column per class of positions.

    Returns:
        None where no surrogate was fitted.
    """
    if not found.linear:
        return None
    names = classes(r.positions for r in found.linear)
    with styled():
        figure = new_figure(max(WIDTH, 3.2 * len(names)), 6.6)
        grid = figure.add_gridspec(3, len(names), height_ratios=[1.15, 1, 1])
        for row, (label, read, also) in enumerate(ROWS):
            values = [f(r) for r in found.linear for f in (read, also) if f is not None]
            scale = _r2_scale(values) if row == 2 else fit_close([*values, *[1.0] * (row == 0)])
            for column, name in enumerate(names):
                axes = figure.add_subplot(grid[row, column])
                if row == 0:
                    axes.axhline(1, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
                    axes.set_title(class_title(name))
                own = [r for r in found.linear if r.positions == name]
                for side in ("id", "ood"):
                    _series(axes, [r for r in own if r.distribution == side], read, also, scale)
                set_scale(axes, scale, small=True)
                shade(axes, found.mask, -0.5, "removed by the plan")
                whole_ticks(axes, -0.7, found.depth - 0.3)
                light_grid(axes)
                axes.set_ylabel("" if column else label + _below(row, values), fontsize=8.5)
                axes.set_xlabel("block" if row == 2 else "")
        _legend(figure, found)
    return figure


def _series(
    axes: "Axes", rows: Sequence[Linear], read: Read, also: Read | None, scale: Scale
) -> None:
    if not rows:
        return
    stroke = SIDES[rows[0].distribution]
    by_layer = {r.layer: r for r in rows}
    x = range(min(by_layer), max(by_layer) + 1)
    for draw, style, width in ((read, "-", 1.1), (also, DOTTED, 1.3)):
        if draw is not None:
            values = [draw(by_layer[i]) if i in by_layer else nan for i in x]
            axes.plot(x, scale.places(values), color=stroke.colour, lw=width, ls=style)
    for accepted in (True, False):
        own = [r for r in rows if r.accepted is accepted]
        # The gain is the block's own, so it does not hang on the surrogate.
        full = accepted or read is ROWS[0][1]
        axes.scatter(
            [r.layer for r in own],
            scale.places(read(r) for r in own),
            s=16,
            marker=stroke.marker,
            facecolors=stroke.colour if full else "white",
            edgecolors=stroke.colour,
            linewidths=1.0,
            zorder=3,
        )


def _r2_scale(values: Sequence[float]) -> Scale:
    finite = [v for v in values if isfinite(v)]
    low = max(min(finite, default=0.0), LOWEST)
    return Scale(low - 0.08 * (1 - low) - 1e-3, 1 + 0.04 * (1 - low) + 1e-3, False)


def _below(row: int, values: Sequence[float]) -> str:
    if row == 2 and any(v < LOWEST for v in values):
        return f"\n(below {plain_number(LOWEST)} at the edge)"
    return ""


def _legend(figure: "Figure", found: Geometry) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Line2D([], [], color=s.colour, marker=s.marker, markersize=4, label=s.label)
        for s in (SIDES["id"], SIDES["ood"])
    ]
    if not all(r.accepted for r in found.linear):
        handles.append(
            Line2D(
                [], [], color=GREY, marker="o", mfc="white", ls="", ms=4, label="R² below threshold"
            )
        )
    handles.append(
        Line2D([], [], color=GREY, ls=DOTTED, label="gain of the surrogate; R² of the update")
    )
    if found.mask:
        handles.append(Patch(color="#dde2e6", label="removed by the plan"))
    figure.legend(handles=handles, loc="outside lower left", ncols=3, fontsize=8)
