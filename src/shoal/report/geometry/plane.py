"""The signature plane: how gain and rank of each block change from ID to OOD."""

from collections.abc import Sequence
from math import isnan
from typing import TYPE_CHECKING

from shoal.geometry.records import Geometry, Signature
from shoal.report.geometry.marks import OTHERS, SELECTED, class_title, classes
from shoal.report.marks import WIDTH, Scale, Stroke, fit_signed
from shoal.report.style import ACCENT, FAINT, INK, light_grid, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW = 12
"""Blocks up to which those that are not selected are labelled too."""

HEIGHT = 3.9


def plane_figure(found: Geometry) -> "Figure | None":
    """Draw the change of the rank against that of the gain, a panel per class of positions.

    Returns:
        None where no block has both numbers.
    """
    known = [s for s in found.signatures if not (isnan(s.gain_change) or isnan(s.rank_change))]
    if not known:
        return None
    names = classes(s.positions for s in known)
    x = fit_signed(s.gain_change for s in known)
    y = fit_signed(s.rank_change for s in known)
    width = max(WIDTH, 3.6 * len(names)) if len(names) > 1 else 0.72 * WIDTH
    with styled():
        figure = new_figure(width, HEIGHT)
        for column, name in enumerate(names, 1):
            axes = figure.add_subplot(1, len(names), column)
            own = [s for s in known if s.positions == name]
            left = sum(s.positions == name for s in found.signatures) - len(own)
            _panel(axes, own, (x, y), width / len(names))
            axes.set_title(class_title(name))
            missing = f"\n({left} without a number)" if left else ""
            axes.set_xlabel(f"log of the gain, OOD over ID{missing}")
            axes.set_ylabel("log of the update's rank, OOD over ID" if column == 1 else "")
        _legend(figure, known)
    return figure


def _panel(
    axes: "Axes", rows: Sequence[Signature], scales: tuple[Scale, Scale], width: float
) -> None:
    x, y = scales
    axes.set_xlim(x.low, x.high)
    axes.set_ylim(y.low, y.high)
    axes.fill_between([0, x.high], y.low, 0, color=ACCENT, alpha=0.09, linewidth=0, zorder=0)
    for line in (axes.axvline, axes.axhline):
        line(0, color=FAINT, linewidth=0.9, zorder=1)
    # Selected ones are drawn last, and so lie above the others.
    for selected in (False, True):
        stroke = SELECTED if selected else OTHERS
        for hollow in (True, False):
            own = [s for s in rows if s.selected is selected and (s.amplifier is None) is hollow]
            _dots(axes, own, scales, stroke, hollow=hollow)
    axes.text(
        0.985, 0.02, "gain up, rank down", transform=axes.transAxes, ha="right", va="bottom",
        fontsize=7.5, color=ACCENT,
    )  # fmt: skip
    labelled = [s for s in rows if s.selected] + [s for s in rows if not s.selected] * (
        len(rows) <= FEW
    )
    _labels(axes, rows, labelled, scales, width)
    light_grid(axes)


def _dots(
    axes: "Axes",
    rows: Sequence[Signature],
    scales: tuple[Scale, Scale],
    stroke: Stroke,
    *,
    hollow: bool,
) -> None:
    axes.scatter(
        scales[0].places(s.gain_change for s in rows),
        scales[1].places(s.rank_change for s in rows),
        s=34,
        marker=stroke.marker,
        facecolors="white" if hollow else stroke.colour,
        edgecolors=stroke.colour,
        linewidths=1.1,
        zorder=3,
        clip_on=False,
    )


def _labels(
    axes: "Axes",
    rows: Sequence[Signature],
    labelled: Sequence[Signature],
    scales: tuple[Scale, Scale],
    width: float,
) -> None:
    """Write the blocks' indices beside their dots, where least is in the way."""

    def points(s: Signature) -> tuple[float, float]:
        """About where a dot stands, in points; the layout is not known before it is drawn."""
        x, y = scales
        across = (x.place(s.gain_change) - x.low) / (x.high - x.low)
        up = (y.place(s.rank_change) - y.low) / (y.high - y.low)
        return across * 72 * (width - 0.8), up * 72 * (HEIGHT - 1.2)

    taken = [points(s) for s in rows]
    for s in labelled:
        here = points(s)
        best = min(_OFFSETS, key=lambda o: _crowd((here[0] + o[0], here[1] + o[1]), taken))
        taken.append((here[0] + best[0], here[1] + best[1]))
        axes.annotate(
            str(s.layer),
            (scales[0].place(s.gain_change), scales[1].place(s.rank_change)),
            xytext=best,
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=7.5,
            color=INK if s.selected else OTHERS.colour,
            fontweight="bold" if s.selected else "normal",
            annotation_clip=False,
            zorder=4,
        )


_OFFSETS = ((9, 5), (9, -6), (-9, 5), (-9, -6), (0, 10), (0, -10), (15, 0), (-15, 0))


def _crowd(place: tuple[float, float], taken: Sequence[tuple[float, float]]) -> float:
    """How near other writing and dots are; it falls off fast, so that only the next ones count."""
    return sum(
        1 / (1 + ((place[0] - x) / 6) ** 2 + ((place[1] - y) / 5) ** 2) ** 3 for x, y in taken
    )


def _legend(figure: "Figure", rows: Sequence[Signature]) -> None:
    from matplotlib.lines import Line2D

    kinds = [
        (SELECTED, False, "removed by the plan"),
        (OTHERS, False, "kept"),
    ]
    handles = [
        Line2D([], [], color=s.colour, marker=s.marker, ls="", ms=5.5, label=label)
        for s, _, label in kinds
        if any(r.selected is (s is SELECTED) for r in rows)
    ]
    if any(r.amplifier is None for r in rows):
        handles.append(
            Line2D(
                [], [], color=OTHERS.colour, marker="o", mfc="white", ls="", ms=5.5,
                label="hollow: a surrogate was rejected",
            )
        )  # fmt: skip
    figure.legend(handles=handles, loc="outside lower left", ncols=3, fontsize=8)
