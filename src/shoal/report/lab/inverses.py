"""How much of the gain comes back when blocks are kept and undone by a linear map."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import TYPE_CHECKING

from shoal.geometry.records import Point
from shoal.lab.claims.causes import recovered
from shoal.lab.study import Placed
from shoal.report.lab.gaps import cell_label
from shoal.report.lab.marks import percent
from shoal.report.lab.reading import dense_point, points_of, removal_gain
from shoal.report.lab.words import share
from shoal.report.marks import AMBER, GREY, WIDTH, Scale, Stroke, set_rows
from shoal.report.style import ACCENT, INK, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = {
    "inverse": Stroke("inverse surrogate", ACCENT, "D"),
    "random": Stroke("random orthogonal map of equal norm", GREY, "s"),
    "rotated": Stroke("same displacement, turned at random", AMBER, "^"),
}

LOWEST, HIGHEST = -1.0, 1.5
"""Shares of the gain that are drawn; others stand at the edges."""


@dataclass(frozen=True)
class Undone:
    """What maps behind kept blocks recover on one task.

    Attributes:
        placed: Model and task.
        gain: Of removing the blocks, which is what there is to recover; above 0.
        shares: Intervention -> share of the gain that each of its points recovers.
        r2: Least held-out R^2 of the surrogates; NaN if not known.
    """

    placed: Placed
    gain: float
    shares: dict[str, list[float]]
    r2: float

    def best(self, kind: str) -> float | None:
        """The most that a kind recovers."""
        return max(self.shares[kind], default=None)


def undone(geometries: Sequence[Placed]) -> list[Undone]:
    """Models and tasks where removal gains something and inverses were tried."""
    found = []
    for placed in geometries:
        gain = removal_gain(placed)
        if gain is None or not gain > 0 or not points_of(placed, "inverse"):
            continue
        every = placed.geometry.points
        shares = {kind: [recovered(every, [p]) for p in points_of(placed, kind)] for kind in KINDS}
        found.append(Undone(placed, gain, shares, _r2(points_of(placed, "inverse"))))
    return found


def _r2(points: Sequence[Point]) -> float:
    return min((p.r2 for p in points if p.r2 is not None), default=nan)


def without_gain(geometries: Sequence[Placed]) -> int:
    """Models and tasks with inverses where removal gains nothing that could be recovered."""
    tried = [p for p in geometries if dense_point(p) and points_of(p, "inverse")]
    return len(tried) - len(undone(geometries))


def inverses_figure(geometries: Sequence[Placed]) -> "Figure | None":
    """Draw the share of the removal's gain that each map recovers, a row for each cell.

    Returns:
        None where removal gained nothing, or no inverse was tried.
    """
    rows = undone(geometries)
    if not rows:
        return None
    scale = Scale(LOWEST, HIGHEST, False)
    with styled():
        figure = new_figure(WIDTH, 1.3 + 0.27 * len(rows))
        axes = figure.add_subplot()
        axes.axvline(0, color=INK, linewidth=0.9, zorder=1)
        axes.axvline(1, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
        for row, one in enumerate(rows):
            for kind, stroke in KINDS.items():
                _dots(axes, row, one.shares[kind], scale, stroke, first=row == 0)
        set_rows(axes, [f"{cell_label(r.placed)} (gain {share(r.gain)})" for r in rows])
        axes.set_xlim(LOWEST, HIGHEST)
        ticks = (-1.0, -0.5, 0.0, 0.5, 1.0, 1.5)
        axes.set_xticks(ticks, [percent(tick) for tick in ticks])
        outside = any(v < LOWEST or v > HIGHEST for r in rows for s in r.shares.values() for v in s)
        note = " (what lies beyond stands at the edge)" if outside else ""
        axes.set_xlabel(f"share of the gain of removal that is recovered{note}")
        right = axes.secondary_yaxis("right")
        told = [f"R² {r.r2:.3f}" if isfinite(r.r2) else "" for r in rows]
        right.set_yticks(range(len(rows)), told)
        right.tick_params(length=0, labelsize=8)
        right.spines["right"].set_visible(False)
        figure.legend(loc="outside lower left", ncols=3, fontsize=8)
    return figure


def _dots(
    axes: "Axes", row: int, shares: Sequence[float], scale: Scale, stroke: Stroke, *, first: bool
) -> None:
    """Each try pale, the best of them filled."""
    known = [v for v in shares if v == v]
    if first:
        axes.scatter(
            [],
            [],
            s=34,
            marker=stroke.marker,
            color=stroke.colour,
            label=stroke.label,
            linewidths=0,
        )
    if not known:
        return
    axes.scatter(
        scale.places(known), [row] * len(known), s=18, marker=stroke.marker, color=stroke.colour,
        alpha=0.35, linewidths=0, zorder=2, clip_on=False,
    )  # fmt: skip
    axes.scatter(
        [scale.place(max(known))], [row], s=36, marker=stroke.marker, color=stroke.colour,
        linewidths=0, zorder=3, clip_on=False,
    )  # fmt: skip
