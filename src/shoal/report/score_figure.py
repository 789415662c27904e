"""Scores of units as bars or dots, and angular distances over windows as a map.

Attention, MLP and half step have colours of their own and stand beside each other, a half step
between its two blocks; the lowest are then drawn in full colour and the others pale.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, isfinite, nan
from typing import TYPE_CHECKING

from shoal.core.mask import Part, Site
from shoal.core.units import Granularity
from shoal.report.scores import ScoreReport
from shoal.report.style import ACCENT, FAINT, GRID, INK, MAIN, light_grid, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABELS = {
    "block_influence": ("Block influence", "1 − cos(input, output), all tokens"),
    "angular": ("Angular distance", "angle of input and output / π, last token"),
    "relative_magnitude": ("Relative magnitude", "‖output − input‖ / ‖output‖"),
    "norm_ratio": ("Norm ratio", "‖output‖ / ‖input‖"),
    "taylor": ("Taylor", "Σ |weight × gradient|"),
    "magnitude": ("Magnitude", "Σ |weight|"),
}

SECOND = "#b7791f"
"""Colour of the second kind of units."""

WIDE = 12.0
"""Ratio of the largest to the median value from which an axis is logarithmic."""


def score_figure(report: ScoreReport) -> "Figure":
    """Draw one panel per score with the lowest blocks marked, and a map of the angular windows.

    Args:
        report: The scores.
    """
    names = list(report.scores)
    mapped = bool(report.angular_windows)
    panels = len(names) + mapped
    columns = 1 if panels == 1 else 2
    lines = ceil(panels / columns)
    with styled():
        figure = new_figure(min(6.6, 3.4 + 0.09 * report.depth) * columns, 2.55 * lines + 0.45)
        for place, name in enumerate(names):
            _panel(figure.add_subplot(lines, columns, place + 1), report, name)
        if mapped:
            # Alone in its line it takes all of it.
            first = panels if panels % columns == 0 else panels - panels % columns + 1
            _map(figure.add_subplot(lines, columns, (first, lines * columns)), report)
        figure.suptitle(
            f"{report.model.id} on {report.objective.partition(':')[2] or report.objective}, "
            f"{report.examples} examples",
            x=0.01,
            ha="left",
            fontsize=11,
        )
    return figure


@dataclass(frozen=True)
class _Place:
    """Where a unit stands, and what it is."""

    x: float
    kind: str


def _place(unit: str, granularity: Granularity) -> _Place:
    first, *more = (Site.parse(site) for site in unit.split("+"))
    if more:
        return _Place(first.layer + 0.5, "half step")
    beside = 0.2 if granularity is Granularity.BOTH else 0.0
    if first.part is Part.ATTN:
        return _Place(first.layer - beside, "attention")
    if first.part is Part.MLP:
        return _Place(first.layer + beside, "MLP")
    return _Place(first.layer, "block")


def _panel(axes: "Axes", report: ScoreReport, name: str) -> None:
    values = [v if isfinite(v) else nan for v in report.scores[name]]
    places = [_place(unit, report.granularity) for unit in report.names]
    kinds = list(dict.fromkeys(place.kind for place in places))
    lowest = set(report.order(name)[: report.marked])
    from_zero = _set_range(axes, sorted(v for v in values if isfinite(v)))
    if not from_zero and report.granularity is Granularity.HALF:
        _line(axes, [place.x for place in places], values)
    for kind, colour in zip(kinds, (MAIN, SECOND), strict=False):
        own = [i for i, place in enumerate(places) if place.kind == kind]
        pale, full = (MAIN, ACCENT) if len(kinds) == 1 else (_pale(colour), colour)
        colours = [full if i in lowest else pale for i in own]
        xs, ys = [places[i].x for i in own], [values[i] for i in own]
        if from_zero:
            axes.bar(xs, ys, width=0.78 / len(kinds), color=colours, alpha=0.9)
        else:
            # The length of a bar means nothing without a zero.
            if report.granularity is not Granularity.HALF:
                _line(axes, xs, ys)
            axes.scatter(xs, ys, s=26, color=colours, zorder=2)
        if len(kinds) > 1:
            axes.scatter([], [], s=26, marker="s", color=colour, label=kind)
    title, what = LABELS.get(name, (name, ""))
    axes.set_title(title)
    axes.set_ylabel(what, fontsize=7.5)
    _blocks(axes, report.depth)
    which = "block" if kinds[0] == "block" or len(kinds) > 1 else f"{kinds[0]} of block"
    marked = "marked" if len(kinds) == 1 else "in full colour"
    axes.set_xlabel(f"{which}; {len(lowest)} lowest {marked}")
    if len(kinds) > 1:
        axes.legend(
            loc="lower right",
            bbox_to_anchor=(1, 1),
            ncols=2,
            fontsize=8,
            borderpad=0,
            handletextpad=0,
            columnspacing=1,
        )
    light_grid(axes)


def _line(axes: "Axes", xs: Sequence[float], ys: Sequence[float]) -> None:
    """A faint line through dots, to follow them by."""
    axes.plot(xs, ys, color=GRID, linewidth=1.2, zorder=1)


def _set_range(axes: "Axes", finite: Sequence[float]) -> bool:
    """Choose the range of the values; whether it begins at zero.

    Args:
        axes: Where they are drawn.
        finite: The values, ascending.
    """
    middle = finite[len(finite) // 2] if finite else 0.0
    if middle > 0 and finite[0] > 0 and finite[-1] > WIDE * middle:
        _logarithmic(axes, 0.6 * finite[0], 1.6 * finite[-1])
        return False
    if middle > 0 and finite[0] > 0.5 * finite[-1]:
        # From zero, all would look alike.
        room = max(finite[-1] - finite[0], 1e-3 * finite[-1])
        axes.set_ylim(finite[0] - 0.12 * room, finite[-1] + 0.12 * room)
        return False
    return True


def _pale(colour: str) -> str:
    """A colour with much white in it."""
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 - 0.38 * (255 - part)):02x}" for part in parts)


def _logarithmic(axes: "Axes", low: float, high: float) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_yscale("log")
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 3) if high > 10 * low else (1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _map(axes: "Axes", report: ScoreReport) -> None:
    lengths = sorted(report.angular_windows)
    rows = [
        [*(v if isfinite(v) else nan for v in report.angular_windows[n])]
        + [nan] * (report.depth - len(report.angular_windows[n]))
        for n in lengths
    ]
    image = axes.pcolormesh(
        [i - 0.5 for i in range(report.depth + 1)],
        [lengths[0] - 0.5, *(n + 0.5 for n in lengths)],
        rows,
        cmap="viridis",
        rasterized=True,
    )
    starts = [report.best_window(n).start for n in lengths]
    axes.scatter(starts, lengths, s=9, color="white", edgecolors=INK, linewidths=0.5, zorder=3)
    axes.set_title("Angular distance over windows")
    axes.set_ylabel("blocks in the window", fontsize=7.5)
    _blocks(axes, report.depth)
    axes.set_xlabel("first block of the window; dots: least for each length")
    bar = axes.figure.colorbar(image, ax=axes, pad=0.02, aspect=14)
    bar.outline.set_edgecolor(FAINT)


def _blocks(axes: "Axes", depth: int) -> None:
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100) if depth / s <= 16 or s == 100)
    axes.set_xticks(range(0, depth, step))
    axes.set_xlim(-0.7, depth - 0.3)
