"""Which blocks are removed for which task."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shoal.lab.records import Selection, Shift, Shifts
from shoal.report.lab.marks import panels
from shoal.report.lab.reading import in_order
from shoal.report.marks import literal
from shoal.report.style import ACCENT, GRID, INK, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALE = "#f3cfb8"


def removal_order(selection: Selection) -> dict[int, int]:
    """Block -> when TALE removed it, from 1, up to BEST and on to BSBA."""
    found: dict[int, int] = {}
    for step in selection.path:
        for block in step.mask.blocks:
            found.setdefault(block, len(found) + 1)
    wanted = {*selection.best.blocks, *selection.bsba.blocks}
    return {block: order for block, order in found.items() if block in wanted} | {
        block: len(found) + 1 for block in wanted if block not in found
    }


def removed_figure(models: Sequence[Shifts]) -> "Figure | None":
    """Draw the blocks that go for each task, a panel for each model.

    Returns:
        None where there is no task.
    """
    shown = [m for m in models if m.shifts]
    if not shown:
        return None
    most = max(len(m.shifts) for m in shown)
    with styled():
        figure, drawn = panels(len(shown), 2, 0.75 + 0.2 * most, extra=0.45)
        for place, (axes, model) in enumerate(zip(drawn, shown, strict=True)):
            shifts = in_order(model.shifts)
            depth = max(s.selection.best.depth for s in shifts)
            for row, shift in enumerate(shifts):
                _row(axes, row, shift)
            axes.set_xlim(-0.5, depth - 0.5)
            axes.set_ylim(len(shifts) - 0.5, -0.5)
            labels = [f"{s.sigma:g}{'*' if s.in_distribution else ''}" for s in shifts]
            axes.set_yticks(range(len(shifts)), labels)
            axes.set_xticks(range(0, depth, 1 if depth <= 16 else 4))
            axes.tick_params(length=0, labelsize=8)
            for side in ("left", "bottom"):
                axes.spines[side].set_visible(False)
            axes.set_title(literal(model.model))
            axes.set_xlabel("block", fontsize=8)
            axes.set_ylabel("σ (* training)" if place % 2 == 0 else "", fontsize=8)
        _legend(figure)
    return figure


def _row(axes: "Axes", row: int, shift: Shift) -> None:
    from matplotlib.patches import Rectangle

    selection = shift.selection
    order = removal_order(selection)
    best, bsba = set(selection.best.blocks), set(selection.bsba.blocks)
    for block in range(selection.best.depth):
        colour = ACCENT if block in best else PALE if block in bsba else GRID
        axes.add_patch(Rectangle((block - 0.44, row - 0.42), 0.88, 0.84, color=colour, linewidth=0))
        if block in order:
            ink = "white" if block in best else INK
            axes.text(
                block, row, str(order[block]), ha="center", va="center", fontsize=6.5, color=ink
            )


def _legend(figure: "Figure") -> None:
    from matplotlib.patches import Patch

    handles = [
        Patch(color=ACCENT, label="removed by BEST"),
        Patch(color=PALE, label="removed by BSBA alone"),
        Patch(color=GRID, label="kept"),
    ]
    figure.legend(handles=handles, loc="outside lower left", ncols=3, fontsize=8)
