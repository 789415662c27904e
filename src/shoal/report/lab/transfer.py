"""What a mask that was chosen for one task does on another."""

from collections.abc import Sequence
from math import isfinite, isnan
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shoal.lab.records import Shifts
from shoal.report.lab.reading import by_range, geometric, in_order
from shoal.report.marks import WIDTH, literal
from shoal.report.style import GRID, INK, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEVELS = (0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.1, 1.4, 2.0, 3.0, 5.0, 10.0)
"""Ratios of losses between which the colour stays the same; beyond them it is the darkest."""

MOST_NUMBERS = 12
"""Tasks up to which cells have numbers."""

Ratios = NDArray[np.float64]


def ratios(models: Sequence[Shifts], which: str = "best") -> tuple[list[str], list[str], Ratios]:
    """Loss over the dense loss of every chosen mask on every task, geometric mean over models.

    Args:
        models: Models that were trained alike.
        which: `best` or `bsba`.

    Returns:
        Names of the tasks, their labels, and ratios [chosen on, judged on]; NaN where a mask was
        not judged.
    """
    shifts = {s.task: s for m in models for s in m.shifts}
    ordered = in_order(shifts.values())
    names = [s.task for s in ordered]
    labels = [f"{s.sigma:g}{' (training)' if s.in_distribution else ''}" for s in ordered]
    found: dict[tuple[str, str], list[float]] = {}
    for model in models:
        for cell in model.transfer:
            if cell.which == which:
                found.setdefault((cell.chosen_on, cell.task), []).append(1 - cell.test.gain.value)
    table = [[geometric(found.get((row, column), [])) for column in names] for row in names]
    return names, labels, np.array(table, dtype=float).reshape(len(names), len(names))


def transfer_figure(models: Sequence[Shifts]) -> "Figure | None":
    """Draw how BEST of each task does on every task, a panel for each training range.

    Returns:
        None where no mask was judged on other tasks.
    """
    groups = by_range([m for m in models if any(c.which == "best" for c in m.transfer)])
    if not groups:
        return None
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import BoundaryNorm

    columns = min(2, len(groups))
    lines = -(-len(groups) // columns)
    with styled():
        figure = new_figure(WIDTH if columns > 1 else 0.62 * WIDTH, 4.0 * lines + 0.8)
        colours = colormaps["RdBu_r"].with_extremes(bad=GRID)
        norm = BoundaryNorm(LEVELS, colours.N, extend="both")
        drawn = []
        for place, (name, own) in enumerate(groups.items()):
            axes = figure.add_subplot(lines, columns, place + 1)
            _, labels, table = ratios(own)
            # Infinite is more than anything, and a place outside of the range is enough for it.
            shown = np.clip(table, LEVELS[0] / 2, LEVELS[-1] * 2)
            axes.pcolormesh(
                np.ma.masked_invalid(shown),
                cmap=colours,
                norm=norm,
                edgecolors="white",
                linewidth=1,
            )
            _cells(axes, table, norm)
            _labels(axes, labels)
            count = f"mean of {len(own)} models" if len(own) > 1 else own[0].model
            axes.set_title(literal(f"trained on {name}: {count}"), fontsize=9)
            axes.set_ylabel("σ that BEST was chosen on" if place % columns == 0 else "")
            drawn.append(axes)
        bar = figure.colorbar(
            ScalarMappable(norm, colours),
            ax=drawn,
            location="bottom",
            shrink=0.7,
            aspect=40,
            pad=0.02,
        )
        bar.set_ticks(list(LEVELS), labels=[f"{level:g}" for level in LEVELS])
        bar.ax.tick_params(labelsize=8)
        bar.set_label(
            "loss over dense loss: below 1 (blue) a gain, above 1 (red) a cost", fontsize=8
        )
    return figure


def _labels(axes: "Axes", labels: Sequence[str]) -> None:
    middle = np.arange(len(labels)) + 0.5
    short = [label.replace(" (training)", "\n(training)") for label in labels]
    axes.set_xticks(middle, short)
    axes.set_yticks(middle, short)
    axes.tick_params(length=0, labelsize=7.5)
    axes.set_ylim(len(labels), 0)
    axes.set_xlabel("σ that it is judged on")
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    for row in range(len(labels)):
        frame = dict(xy=(row, row), width=1, height=1, fill=False, edgecolor=INK, linewidth=0.8)
        _frame(axes, frame)


def _frame(axes: "Axes", frame: dict[str, object]) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle(**frame))  # type: ignore[arg-type]


def _cells(axes: "Axes", table: Ratios, norm: object) -> None:
    if len(table) > MOST_NUMBERS:
        return
    for (row, column), value in np.ndenumerate(table):
        dark = not LEVELS[2] <= value <= LEVELS[-3]
        text = "?" if isnan(value) else ratio_text(value)
        colour = "white" if dark and not isnan(value) else INK
        axes.text(
            column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=6.3, color=colour
        )


def ratio_text(value: float) -> str:
    """A ratio in at most four signs or so."""
    if not isfinite(value):
        return "∞"
    if value < 0.01:
        return f"{value:.0e}".replace("e-0", "e-") if value else "0"
    if value < 10:
        return f"{value:.2f}"
    return f"{value:.0f}" if value < 1e4 else f"{value:.0e}".replace("e+0", "e").replace("e+", "e")
