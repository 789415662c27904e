"""Whether the selected blocks are high-gain, low-rank amplifiers of shifted inputs."""

from collections.abc import Sequence
from math import exp, isfinite
from typing import TYPE_CHECKING

from shoal.geometry.records import Signature
from shoal.lab.study import Placed
from shoal.report.lab.marks import panel_legend, ratio_axis, ratio_scale
from shoal.report.marks import GREY, WIDTH, Scale, literal
from shoal.report.style import ACCENT, GRID, light_grid, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FAR = 50.0
"""Log ratios beyond this are drawn as this, which is outside of every axis."""


def sides(geometries: Sequence[Placed]) -> dict[str, list[Placed]]:
    """Tasks wider than training, and those narrower; only where blocks were selected."""
    chosen = [p for p in geometries if p.geometry.mask and p.geometry.signatures]
    found = {
        "wider than training": [p for p in chosen if p.sigma > p.trained],
        "narrower than training": [p for p in chosen if p.sigma < p.trained],
    }
    return {name: own for name, own in found.items() if own}


def counted(signatures: Sequence[Signature], *, selected: bool) -> tuple[int, int]:
    """Amplifiers among the selected, or the other, blocks, and how many of these are judged."""
    known = [s for s in signatures if s.selected == selected and s.amplifier is not None]
    return sum(bool(s.amplifier) for s in known), len(known)


def signatures_figure(geometries: Sequence[Placed]) -> "Figure | None":
    """Draw change of rank over change of gain, a dot for each block, model and task.

    Returns:
        None where no blocks were selected whose signature was taken.
    """
    rows = sides(geometries)
    if not rows:
        return None
    classes = sorted(
        {s.positions for own in rows.values() for p in own for s in p.geometry.signatures}
    )
    every = [s for own in rows.values() for p in own for s in p.geometry.signatures]
    across = ratio_scale((_ratio(s.gain_change) for s in every), 100.0)
    up = ratio_scale((_ratio(s.rank_change) for s in every), 100.0)
    with styled():
        width = WIDTH if len(classes) > 1 else 0.62 * WIDTH
        figure = new_figure(width, 3.2 * len(rows) + 0.5)
        drawn = []
        for row, (name, own) in enumerate(rows.items()):
            for column, positions in enumerate(classes):
                place = row * len(classes) + column + 1
                axes = figure.add_subplot(len(rows), len(classes), place)
                found = [s for p in own for s in p.geometry.signatures if s.positions == positions]
                _panel(axes, found, across, up)
                told = "" if positions == "all" else f", {positions} positions"
                axes.set_title(literal(f"{name}{told}") + _shares(found), fontsize=9)
                axes.set_ylabel("rank of the update, shifted / training" if column == 0 else "")
                if row == len(rows) - 1:
                    axes.set_xlabel("gain, shifted / training")
                drawn.append(axes)
        panel_legend(figure, drawn, 4)
    return figure


def _shares(found: Sequence[Signature]) -> str:
    parts = []
    for name, selected in (("selected", True), ("others", False)):
        hits, known = counted(found, selected=selected)
        parts.append(f"{name} {hits} of {known}")
    return "\namplifiers: " + ", ".join(parts)


def _ratio(change: float) -> float:
    return exp(min(max(change, -FAR), FAR)) if isfinite(change) else change * 0 + change


def _panel(axes: "Axes", found: Sequence[Signature], across: Scale, up: Scale) -> None:
    axes.fill_between(
        [1.0, across.high], up.low, 1.0, color=GRID, alpha=0.7, linewidth=0, zorder=0,
        label="amplifiers: gain up, rank down",
    )  # fmt: skip
    groups = (
        (
            "other blocks",
            GREY,
            ".",
            [s for s in found if not s.selected and s.amplifier is not None],
        ),
        (
            "removed by BEST",
            ACCENT,
            "D",
            [s for s in found if s.selected and s.amplifier is not None],
        ),
    )
    for label, colour, marker, own in groups:
        axes.scatter(
            across.places(_ratio(s.gain_change) for s in own),
            up.places(_ratio(s.rank_change) for s in own),
            s=22, marker=marker, color=colour, alpha=0.7, linewidths=0, label=label, zorder=3,
        )  # fmt: skip
    unknown = [s for s in found if s.amplifier is None]
    if unknown:
        axes.scatter(
            across.places(_ratio(s.gain_change) for s in unknown),
            up.places(_ratio(s.rank_change) for s in unknown),
            s=20, marker="x", color=GREY, alpha=0.5, linewidths=1, label="no linear surrogate",
            zorder=2,
        )  # fmt: skip
    ratio_axis(axes, across, "x")
    ratio_axis(axes, up, "y")
    light_grid(axes, "both")
