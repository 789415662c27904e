"""Losses of the model under interventions as rows of dots."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shoal.geometry.records import Geometry, Point
from shoal.report.geometry.marks import DENSE
from shoal.report.marks import (
    WIDTH,
    Stroke,
    draw_dot,
    edge_note,
    fit_close,
    literal,
    mean_ends,
    set_rows,
    set_scale,
)
from shoal.report.style import new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Row:
    """Points that stand beside each other.

    Attributes:
        label: What they are.
        points: The points.
        stroke: How they are drawn.
        hollow: Whether they stand back.
    """

    label: str
    points: Sequence[Point]
    stroke: Stroke
    hollow: bool = False


def rows_figure(found: Geometry, rows: Sequence[Row]) -> "Figure":
    """Draw OOD and ID losses with their intervals; a line goes through the dense model's."""
    with styled():
        figure = new_figure(WIDTH, 1.35 + 0.34 * len(rows))
        for place, side in enumerate(("ood", "id")):
            axes = figure.add_subplot(1, 2, place + 1)
            _panel(axes, rows, f"loss_{side}")
            set_rows(axes, [""] * len(rows) if place else [row.label for row in rows])
            axes.set_title(f"{side.upper()} loss")
            axes.set_xlabel(literal(found.metric.get(side, "loss")) + axes.get_xlabel(), fontsize=8)
    return figure


def _panel(axes: "Axes", rows: Sequence[Row], name: str) -> None:
    means = [getattr(p, name) for row in rows for p in row.points]
    scale = fit_close(mean_ends(means))
    for i, row in enumerate(rows):
        if row.stroke is DENSE:
            for p in row.points:
                level = scale.place(getattr(p, name).value)
                axes.axvline(level, color=DENSE.colour, linewidth=0.8, linestyle=(0, (4, 3)))
        count = len(row.points)
        for j, p in enumerate(row.points):
            beside = 0.0 if count < 2 else 0.56 * (j / (count - 1) - 0.5)
            draw_dot(axes, getattr(p, name), i + beside, scale, row.stroke, hollow=row.hollow)
    set_scale(axes, scale, "x", small=True)
    axes.set_xlabel(edge_note(scale, [m.value for m in means], "x"))
