"""Losses with an inverse surrogate behind blocks that stay, and with random maps in its place."""

from typing import TYPE_CHECKING

from shoal.geometry.records import Geometry, Point
from shoal.report.geometry.marks import DENSE, OTHERS, SELECTED
from shoal.report.geometry.points import best, dense_point, inverse_groups, of_kind
from shoal.report.geometry.rows import Row, rows_figure
from shoal.report.marks import AMBER, GREEN, Stroke, plain_number
from shoal.report.words import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INVERSE = Stroke("inverse", GREEN, "o")
RANDOM = Stroke("random map", AMBER, "^")
ROTATED = Stroke("rotated inverse", OTHERS.colour, "v")

MOST = 3
"""Groups of sites up to which all ridges are drawn; beyond, the best of each."""


def inverse_figure(found: Geometry) -> "Figure | None":
    """Draw the dense model, the one without the sites, and the dense one with maps behind them.

    Returns:
        None where no map was put anywhere.
    """
    groups = inverse_groups(found.points)
    if not groups:
        return None
    dense = dense_point(found.points)
    rows = [Row("dense", [dense], DENSE)] if dense is not None else []
    for group in groups:
        rows += _group(found, group, all_ridges=len(groups) <= MOST, named=len(groups) > 1)
    return rows_figure(found, rows)


def _group(found: Geometry, group: str, *, all_ridges: bool, named: bool) -> list[Row]:
    where = f"{group}: " if named else ""
    rows = []
    removed = of_kind(found.points, "removed", group)
    if removed:
        rows.append(Row(f"{where}removed", removed, SELECTED))
    inverses = of_kind(found.points, "inverse", group)
    chosen = best(inverses)
    if chosen is not None:
        first = " (best)" if len(inverses) > 1 else ""
        rows.append(Row(f"{where}{ridge_label(chosen)}{first}", [chosen], INVERSE))
    for p in sorted(inverses, key=lambda p: p.ridge or 0.0):
        if p is not chosen and (all_ridges or chosen is None):
            rows.append(Row(where + ridge_label(p), [p], INVERSE, hollow=True))
    for kind, stroke in (("random", RANDOM), ("rotated", ROTATED)):
        points = of_kind(found.points, kind, group)
        if points:
            several = f", {len(points)} seeds" if len(points) > 1 else ""
            rows.append(Row(f"{where}{stroke.label}{several}", points, stroke))
    return rows


def ridge_label(point: Point) -> str:
    """An inverse with its ridge and the surrogates' R^2."""
    parts = [] if point.ridge is None else [f"ridge {plain_number(point.ridge)}"]
    parts += [] if point.r2 is None else [f"R² {number(point.r2)}"]
    return "inverse" + (f", {', '.join(parts)}" if parts else "")
