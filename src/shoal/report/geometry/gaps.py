"""The gap between the OOD and the ID profile, before and after pruning."""

from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING

from shoal.core.records import Mean
from shoal.geometry.records import Change
from shoal.report.geometry.marks import KINDS, SIDES
from shoal.report.marks import (
    GREEN,
    GREY,
    WIDTH,
    Stroke,
    draw_dot,
    edge_note,
    fit,
    fit_signed,
    mean_ends,
    set_rows,
    set_scale,
)
from shoal.report.style import ACCENT, INK, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TOWARDS = {
    -1: Stroke("closer to ID", GREEN, "o"),
    1: Stroke("farther from ID", ACCENT, "D"),
    0: Stroke("not settled", GREY, "s"),
}
"""Direction of a change -> how it is drawn."""


def direction(change: Mean) -> int:
    """-1 where the interval lies below 0, 1 where it lies above, 0 where neither is shown."""
    if change.low is None or change.high is None:
        return 0
    return -1 if change.high < 0 else 1 if change.low > 0 else 0


def known_changes(changes: Mapping[str, Change]) -> dict[str, Change]:
    """Changes in the order of the profiles; kinds of other names come last."""
    names = [*(k for k in KINDS if k in changes), *(k for k in changes if k not in KINDS)]
    return {name: changes[name] for name in names}


def gaps_figure(changes: Mapping[str, Change]) -> "Figure | None":
    """Draw gaps before and after, and their change with its interval.

    Returns:
        None where nothing was pruned.
    """
    rows = known_changes(changes)
    if not rows:
        return None
    with styled():
        figure = new_figure(WIDTH, 1.5 + 0.32 * len(rows))
        left, right = (figure.add_subplot(1, 2, i) for i in (1, 2))
        _gaps(left, rows)
        _changes(right, rows)
        set_rows(left, [KINDS.get(k, k) for k in rows])
        set_rows(right, [""] * len(rows))
        figure.legend(loc="outside lower left", ncols=5, fontsize=8)
    return figure


def _gaps(axes: "Axes", rows: Mapping[str, Change]) -> None:
    values = [v for change in rows.values() for v in (change.before, change.after)]
    scale = fit(values, log=False)
    before, after = SIDES["ood"], SIDES["ood_pruned"]
    for row, change in enumerate(rows.values()):
        ends = scale.places((change.before, change.after))
        if all(map(isfinite, ends)):
            axes.plot(ends, [row, row], color=GREY, linewidth=1.2, zorder=1)
        for value, stroke in ((ends[0], before), (ends[1], after)):
            label = stroke.label if row == 0 else None
            axes.scatter(
                [value], [row], s=40, color=stroke.colour, marker=stroke.marker, label=label
            ).set(zorder=3, clip_on=False)
    set_scale(axes, scale, "x")
    axes.set_title("Gap to the ID profile")
    axes.set_xlabel("mean |log ratio| over depths" + edge_note(scale, values, "x"), fontsize=8)


def _changes(axes: "Axes", rows: Mapping[str, Change]) -> None:
    scale = fit_signed(mean_ends(c.change for c in rows.values()))
    axes.axvline(0, color=INK, linewidth=1, linestyle=(0, (4, 3)))
    labelled: set[int] = set()
    for row, one in enumerate(rows.values()):
        towards = direction(one.change)
        stroke = TOWARDS[towards]
        label = None if towards in labelled else stroke.label
        labelled.add(towards)
        draw_dot(axes, one.change, row, scale, stroke, hollow=towards == 0, label=label)
    set_scale(axes, scale, "x")
    axes.set_title("Change by pruning")
    axes.set_xlabel("after − before; below 0: closer to ID", fontsize=8)
