"""The course of a search: the loss of every mask that it evaluated."""

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING

from shoal.engine.ledger import TraceRow
from shoal.report.style import ACCENT, FAINT, INK, MAIN, light_grid, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = 0.9
"""Share of the losses that must lie inside the figure; broken masks may cost a hundredfold."""


def trace_figure(
    rows: Sequence[TraceRow],
    *,
    dense: float | None = None,
    title: str = "",
    chosen: str | None = None,
) -> "Figure":
    """Draw losses against evaluations, the best so far as a line.

    Losses far above the others, and those that are no numbers, stand at the upper edge.

    Args:
        rows: The trace.
        dense: Loss of the dense model, for a line.
        title: Heading.
        chosen: The mask of the plan, which is ringed.
    """
    from matplotlib.ticker import MaxNLocator

    with styled():
        figure = new_figure(7.2, 4.0)
        axes = figure.add_subplot()
        best = [(r.evaluations, r.best) for r in rows if r.best is not None and isfinite(r.best)]
        top = _ceiling(rows, dense)
        _points(axes, rows, top)
        if best:
            last = max(r.evaluations for r in rows)
            x, y = [*(e for e, _ in best), last], [*(b for _, b in best), best[-1][1]]
            label = f"best so far ({best[-1][1]:.4g})"
            axes.step(x, y, where="post", color=ACCENT, linewidth=1.8, label=label, zorder=4)
        ring = [(r.evaluations, r.loss) for r in rows if r.mask == chosen and isfinite(r.loss)]
        if ring:
            x, y = [e for e, _ in ring], [loss for _, loss in ring]
            label = f"plan ({y[0]:.4g})"
            ringed = axes.scatter(x, y, s=70, label=label, facecolors="none", zorder=5)
            ringed.set(edgecolors=INK, linewidths=1.4)
        if dense is not None and isfinite(dense):
            label = f"dense model ({dense:.4g})"
            axes.axhline(dense, color=INK, linewidth=1, linestyle=(0, (4, 3)), label=label)
        if top is not None:
            low = min([*_finite(rows), *([dense] if dense is not None and isfinite(dense) else [])])
            # Accuracies of a few examples may all be the same.
            room = (top - low) or max(abs(top), 1.0)
            axes.set_ylim(low - 0.06 * room, top + 0.04 * room)
        axes.set_xlim(0, max([r.evaluations for r in rows], default=1) + 1)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("evaluations")
        axes.set_ylabel("loss (lower is better)")
        axes.set_title(title)
        light_grid(axes)
        if axes.get_legend_handles_labels()[0]:
            figure.legend(loc="outside lower left", ncols=4, fontsize=8)
    return figure


def _finite(rows: Sequence[TraceRow]) -> list[float]:
    return [r.loss for r in rows if isfinite(r.loss)]


def _ceiling(rows: Sequence[TraceRow], dense: float | None) -> float | None:
    """The loss up to which the figure reaches, or None where matplotlib may decide."""
    losses = sorted(_finite(rows))
    if len(losses) < 2:
        return None
    best = [r.best for r in rows if r.best is not None and isfinite(r.best)]
    floor = min([losses[0], *([dense] if dense is not None and isfinite(dense) else [])])
    usual = losses[min(len(losses) - 1, int(SHOWN * len(losses)))]
    # The whole line of the best so far is shown, whatever the others cost.
    reach = max([usual, *best])
    wide = floor + 1.5 * (reach - floor)
    return losses[-1] if losses[-1] <= wide else wide


def _points(axes: "Axes", rows: Sequence[TraceRow], top: float | None) -> None:
    def inside(row: TraceRow) -> bool:
        return isfinite(row.loss) and (top is None or row.loss <= top)

    whole = [r for r in rows if inside(r) and r.complete]
    part = [r for r in rows if inside(r) and not r.complete]
    above = [r for r in rows if not inside(r)]
    if whole:
        x, y = [r.evaluations for r in whole], [r.loss for r in whole]
        # SVGs of long searches would hold a path per mask.
        many = len(rows) > 2000
        axes.scatter(
            x, y, s=12, color=MAIN, alpha=0.55, linewidths=0, label="evaluated", rasterized=many
        )
    if part:
        x, y = [r.evaluations for r in part], [r.loss for r in part]
        axes.scatter(
            x, y, s=12, facecolors="none", edgecolors=FAINT, linewidths=0.9, label="dropped early"
        )
    if above and top is not None:
        axes.scatter(
            [r.evaluations for r in above],
            [top] * len(above),
            s=20,
            marker="^",
            color=FAINT,
            linewidths=0,
            label=f"above, or no number ({len(above)})",
        )
