"""Loss and gap of distances while what some blocks add is scaled down and up."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from shoal.geometry.records import Point
from shoal.lab.study import Placed
from shoal.report.lab.marks import BEST, OTHERS, panel_legend, ratio_axis
from shoal.report.lab.reading import dense_point, geometric, points_of
from shoal.report.marks import WIDTH, Scale, Stroke, fit, literal, set_scale
from shoal.report.style import FAINT, light_grid, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GROUPS = {
    "selected": Stroke("blocks that BEST removes", BEST.colour, BEST.marker),
    "unselected": OTHERS,
}

MOST = 10.0
"""Ratios of losses above this stand at the upper edge."""

COLUMNS = 4

Curves = dict[str, list[list[tuple[float, float]]]]
"""Group -> curves of pairs of alpha and value."""


def loss_curves(own: Sequence[Placed]) -> Curves:
    """Shifted loss over that of the dense model by alpha, for each model and set of blocks."""
    found: Curves = {group: [] for group in GROUPS}
    for placed in own:
        dense = dense_point(placed)
        if dense is None or not dense.loss_ood.value > 0:
            continue
        for group in GROUPS:
            for points in _sets(placed, group):
                found[group].append(
                    [(p.alpha or 0.0, p.loss_ood.value / dense.loss_ood.value) for p in points]
                )
    return found


def gap_curves(own: Sequence[Placed]) -> Curves:
    """Gap between the profiles of distances by alpha."""
    return {
        group: [
            [(p.alpha or 0.0, p.gaps.distance) for p in points]
            for placed in own
            for points in _sets(placed, group)
        ]
        for group in GROUPS
    }


def _sets(placed: Placed, group: str) -> list[list[Point]]:
    """The scaled points of each set of blocks, by alpha."""
    found: dict[str, list[Point]] = {}
    for point in points_of(placed, "scaled", group):
        found.setdefault(point.sites, []).append(point)
    return [sorted(own, key=lambda p: p.alpha or 0.0) for own in found.values()]


def alphas_figure(geometries: Sequence[Placed], ranges: Mapping[str, str]) -> "Figure | None":
    """Draw curves over alpha, two panels for each training range and task.

    Args:
        geometries: Models and tasks.
        ranges: Model -> what it was trained on.

    Returns:
        None where nothing was scaled.
    """
    cells: dict[tuple[str, float], list[Placed]] = {}
    for placed in geometries:
        if points_of(placed, "scaled", "selected"):
            cells.setdefault((ranges.get(placed.model, placed.model), placed.sigma), []).append(
                placed
            )
    if not cells:
        return None
    columns = min(COLUMNS, len(cells))
    lines = -(-len(cells) // columns)
    with styled():
        figure = new_figure(WIDTH if columns > 1 else 0.5 * WIDTH, 3.5 * lines + 0.4)
        grid = figure.add_gridspec(2 * lines, columns, height_ratios=[1.3, 1.0] * lines)
        drawn = []
        for place, ((name, sigma), own) in enumerate(cells.items()):
            line, column = divmod(place, columns)
            loss = figure.add_subplot(grid[2 * line, column])
            gap = figure.add_subplot(grid[2 * line + 1, column])
            _panel(loss, loss_curves(own), ratio=True)
            _panel(gap, gap_curves(own), ratio=False)
            loss.set_title(literal(f"{name} → σ {sigma:g}"), fontsize=9)
            loss.tick_params(labelbottom=False)
            gap.set_xlabel("α", fontsize=9)
            if column == 0:
                loss.set_ylabel("loss / dense loss", fontsize=8)
                gap.set_ylabel("gap of distances", fontsize=8)
            drawn += [loss, gap]
        panel_legend(figure, drawn, 3)
    return figure


def _panel(axes: "Axes", curves: Curves, *, ratio: bool) -> None:
    values = [y for own in curves.values() for curve in own for _, y in curve]
    scale = _ratios(values) if ratio else fit(values, log=False)
    for group in ("unselected", "selected"):
        stroke, own = GROUPS[group], curves[group]
        for curve in own:
            axes.plot(
                [x for x, _ in curve], scale.places(y for _, y in curve), color=stroke.colour,
                linewidth=0.8, alpha=0.45, zorder=2,
            )  # fmt: skip
        x, y = mean_curve(own, ratio=ratio)
        axes.plot(
            x, scale.places(y), color=stroke.colour, linewidth=2.2, label=stroke.label, zorder=3
        )
    if ratio:
        ratio_axis(axes, scale)
    else:
        set_scale(axes, scale)
    axes.axvline(
        1, color=FAINT, linewidth=0.9, linestyle=(0, (2, 2)), zorder=0, label="dense: α = 1"
    )
    axes.tick_params(labelsize=7.5)
    light_grid(axes)


def mean_curve(
    curves: Sequence[Sequence[tuple[float, float]]], *, ratio: bool
) -> tuple[list[float], list[float]]:
    """Mean at each alpha over the curves that have one there; geometric for ratios."""
    by_alpha: dict[float, list[float]] = {}
    for curve in curves:
        for alpha, y in curve:
            by_alpha.setdefault(alpha, []).append(y)
    x = sorted(by_alpha)
    return x, [geometric(by_alpha[a]) if ratio else sum(by_alpha[a]) / len(by_alpha[a]) for a in x]


def _ratios(values: Sequence[float]) -> Scale:
    """What is above `MOST` would leave no room for what happens below 1."""
    found = fit([1.0, *values], log=True)
    return Scale(min(found.low, 0.8), max(min(found.high, MOST), 1.25), True)
