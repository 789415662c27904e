"""Whether blocks whose removal realigns the geometry are those whose removal helps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import TYPE_CHECKING

from shoal.lab.claims.geometry import relation_of_gap_and_loss
from shoal.lab.study import Placed
from shoal.report.lab.marks import BEST, panel_legend, ratio_axis, ratio_scale
from shoal.report.lab.reading import dense_point, points_of
from shoal.report.marks import GREY, WIDTH, Scale, literal
from shoal.report.style import ACCENT, GRID, light_grid, new_figure, styled
from shoal.report.words import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 3

MOST = 10.0
"""Ratios beyond this, up or down, stand at the edge."""


@dataclass(frozen=True)
class Single:
    """One block removed by itself.

    Attributes:
        gap: Gap of the distance profile over the dense model's.
        loss: Shifted loss over the dense model's.
        selected: Whether BEST removes the block.
    """

    gap: float
    loss: float
    selected: bool


def singles(placed: Placed) -> list[Single]:
    """Every block of a model removed by itself, on one task; empty where that was not tried."""
    dense = dense_point(placed)
    if dense is None:
        return []
    chosen = placed.geometry.mask.blocks if placed.geometry.mask else ()
    return [
        Single(
            gap=_over(p.gaps.distance, dense.gaps.distance),
            loss=_over(p.loss_ood.value, dense.loss_ood.value),
            selected=int(p.group) in chosen,
        )
        for p in points_of(placed, "removed")
        if p.group.isdecimal()
    ]


def _over(value: float, base: float) -> float:
    return value / base if base > 0 else nan


def relation_figure(geometries: Sequence[Placed], ranges: Mapping[str, str]) -> "Figure | None":
    """Draw loss over gap for every single removal, a panel for each training range and task.

    Args:
        geometries: Models and tasks.
        ranges: Model -> what it was trained on.

    Returns:
        None where no block was removed by itself.
    """
    cells: dict[tuple[str, float], list[Placed]] = {}
    for placed in geometries:
        if singles(placed):
            key = (ranges.get(placed.model, placed.model), placed.sigma)
            cells.setdefault(key, []).append(placed)
    if not cells:
        return None
    columns = min(COLUMNS, len(cells))
    lines = -(-len(cells) // columns)
    with styled():
        figure = new_figure(WIDTH if columns > 1 else 0.5 * WIDTH, 2.75 * lines + 0.4)
        drawn = []
        for place, ((name, sigma), own) in enumerate(cells.items()):
            axes = figure.add_subplot(lines, columns, place + 1)
            _panel(axes, [single for placed in own for single in singles(placed)])
            relations = [rho for placed in own for rho in _relation(placed)]
            told = f"\nrank correlation {_mean(relations)}" if relations else ""
            axes.set_title(literal(f"{name} → σ {sigma:g}") + told, fontsize=9)
            axes.set_ylabel("loss / dense loss" if place % columns == 0 else "", fontsize=8)
            axes.set_xlabel("gap of distances / dense gap", fontsize=8)
            drawn.append(axes)
        panel_legend(figure, drawn, 3)
    return figure


def _relation(placed: Placed) -> list[float]:
    """The claim's rank correlation; none where all gaps, or all losses, are the same."""
    found = singles(placed)
    parts = ([s.gap for s in found], [s.loss for s in found])
    varied = all(len({v for v in values if isfinite(v)}) > 1 for values in parts)
    return relation_of_gap_and_loss(placed) if varied else []


def _mean(values: Sequence[float]) -> str:
    return number(sum(values) / len(values), 2)


def _panel(axes: "Axes", found: Sequence[Single]) -> None:
    across = ratio_scale((s.gap for s in found), MOST)
    up = ratio_scale((s.loss for s in found), MOST)
    axes.fill_between(
        [across.low, 1.0],
        up.low,
        1.0,
        color=GRID,
        alpha=0.7,
        linewidth=0,
        zorder=0,
        label="closer and better",
    )
    _dots(axes, [s for s in found if not s.selected], across, up, "other blocks")
    _dots(axes, [s for s in found if s.selected], across, up, "blocks that BEST removes")
    ratio_axis(axes, across, "x")
    ratio_axis(axes, up, "y")
    axes.tick_params(labelsize=7.5)
    light_grid(axes, "both")


def _dots(axes: "Axes", found: Sequence[Single], across: Scale, up: Scale, label: str) -> None:
    if not found:
        return
    selected = found[0].selected
    axes.scatter(
        across.places(s.gap for s in found),
        up.places(s.loss for s in found),
        s=24 if selected else 16,
        marker=BEST.marker if selected else "o",
        color=ACCENT if selected else GREY,
        alpha=0.75,
        linewidths=0,
        label=label,
        zorder=3,
    )
