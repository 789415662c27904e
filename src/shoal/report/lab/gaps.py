"""Whether the profiles of shifted inputs come closer to those of training."""

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Literal

from shoal.geometry.records import Change
from shoal.lab.study import Placed
from shoal.report.marks import GREEN, GREY, WIDTH, Scale, fit, set_rows, set_scale
from shoal.report.style import ACCENT, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = {"norm": "Norms", "distance": "Distances", "cosine": "Cosine distances"}
"""Profiles that are drawn; those of last states stand in the table."""

COLOURS = {"closer": GREEN, "further": ACCENT, "not settled": GREY}

Result = Literal["closer", "further", "not settled"]


def result(change: Change) -> Result:
    """What an interval says of a change of a gap."""
    low, high = change.change.low, change.change.high
    if high is not None and high < 0:
        return "closer"
    return "further" if low is not None and low > 0 else "not settled"


def cell_label(placed: Placed) -> str:
    """A model and a task in a row's name."""
    return f"{placed.model}, σ {placed.sigma:g}"


def gaps_figure(geometries: Sequence[Placed]) -> "Figure | None":
    """Draw each gap before and after pruning, a row for each model and task.

    Returns:
        None where nothing was pruned whose geometry was taken.
    """
    rows = [p for p in geometries if p.geometry.changes]
    kinds = [kind for kind in KINDS if any(kind in p.geometry.changes for p in rows)]
    if not kinds:
        return None
    with styled():
        figure = new_figure(WIDTH, 1.25 + 0.24 * len(rows))
        for place, kind in enumerate(kinds):
            axes = figure.add_subplot(1, len(kinds), place + 1)
            found = [p.geometry.changes.get(kind) for p in rows]
            scale = fit((v for c in found if c is not None for v in _ends(c)), log=False)
            for row, change in enumerate(found):
                if change is not None:
                    _arrow(axes, row, change, scale)
            set_rows(axes, [cell_label(p) if place == 0 else "" for p in rows])
            set_scale(axes, scale, "x")
            axes.set_title(KINDS[kind])
            axes.set_xlabel("gap to training's profile", fontsize=8)
        _legend(figure)
    return figure


def _ends(change: Change) -> list[float | None]:
    ends = (change.change.low, change.change.high)
    return [change.before, change.after, *(None if e is None else change.before + e for e in ends)]


def _arrow(axes: "Axes", row: int, change: Change, scale: Scale) -> None:
    """From a hollow dot to a filled one; the interval of the change lies around the latter."""
    colour = COLOURS[result(change)]
    before, after = scale.place(change.before), scale.place(change.after)
    low, high = (scale.place(end) for end in _ends(change)[2:])
    if isfinite(low) and isfinite(high):
        axes.plot([low, high], [row, row], color=colour, linewidth=4.5, alpha=0.3, zorder=1)
    if isfinite(before) and isfinite(after):
        axes.plot([before, after], [row, row], color=colour, linewidth=1.3, zorder=2)
    for value, face in ((before, "white"), (after, colour)):
        if isfinite(value):
            axes.scatter(
                [value], [row], s=26, facecolors=face, edgecolors=colour, linewidths=1.2, zorder=3,
                clip_on=False,
            )  # fmt: skip


def _legend(figure: "Figure") -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D(
            [], [], marker="o", color=GREY, markerfacecolor="white", linestyle="", label="dense"
        ),
        Line2D([], [], marker="o", color=GREY, linestyle="", label="pruned"),
        *(Line2D([], [], color=c, linewidth=2.5, label=name) for name, c in COLOURS.items()),
    ]
    figure.legend(handles=handles, loc="outside lower left", ncols=5, fontsize=8)
