"""Losses without the selected sites, without others, and without single blocks."""

from typing import TYPE_CHECKING

from shoal.geometry.records import Geometry
from shoal.report.geometry.marks import DENSE, OTHERS, SELECTED, removed_layers
from shoal.report.geometry.points import best, dense_point, of_kind, singles
from shoal.report.geometry.rows import Row, rows_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def removal_figure(found: Geometry) -> "Figure | None":
    """Draw what removal does to the losses, with its controls.

    Returns:
        None where nothing was removed.
    """
    removed = of_kind(found.points, "removed")
    if not removed:
        return None
    dense, alone = dense_point(found.points), singles(found.points)
    lowest, own = best(alone), removed_layers(found)
    rows = [Row("dense", [dense], DENSE)] if dense is not None else []
    for group in dict.fromkeys(p.group for p in removed if not p.group.isdigit()):
        points = [p for p in removed if p.group == group]
        chosen = group == "selected"
        label = f"removed: {points[0].sites}" if chosen else _others(len(points))
        rows.append(Row(label, points, SELECTED if chosen else OTHERS, hollow=not chosen))
    if lowest is not None:
        stroke = SELECTED if int(lowest.group) in own else OTHERS
        rows.append(Row(f"best single block: {lowest.group}", [lowest], stroke))
    other = [p for p in alone if p is not lowest]
    for chosen in (True, False):
        part = [p for p in other if (int(p.group) in own) is chosen]
        if part:
            label = "single, of the plan" if chosen else "single, others"
            rows.append(Row(label, part, SELECTED if chosen else OTHERS, hollow=True))
    return rows_figure(found, rows)


def _others(count: int) -> str:
    return "as many other sites" if count == 1 else f"as many other sites, {count} sets"
