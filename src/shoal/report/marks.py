"""What figures share: colours, intervals, and axes that fit odd values."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, isfinite, isnan, nan
from typing import TYPE_CHECKING, Any

from shoal.core.records import Curve, Mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 8.4
"""Width of the figures in inches."""

WIDE = 12.0
"""Ratio of the largest to the least value from which an axis is logarithmic."""

DECADES = 9
"""Most decades that a logarithmic axis shows; what is less stands at its lower edge."""

GREEN, AMBER, PURPLE, GREY = "#1a8f6d", "#d69e00", "#7a5bb0", "#6b7280"


@dataclass(frozen=True)
class Stroke:
    """How something is drawn everywhere.

    Attributes:
        label: What it is called.
        colour: Its colour; told apart also by those who see few colours.
        marker: Its dot.
    """

    label: str
    colour: str
    marker: str = "o"


def literal(text: str) -> str:
    """Text in which matplotlib sees no formula; over-long names are cut in their middle."""
    short = text if len(text) <= 40 else f"{text[:19]}…{text[-19:]}"
    return short.replace("$", r"\$").replace("\n", " ")


@dataclass(frozen=True)
class Scale:
    """The range of an axis, onto which every value is brought.

    Attributes:
        low: Where it begins.
        high: Where it ends.
        log: Whether it is logarithmic.
    """

    low: float
    high: float
    log: bool

    def place(self, value: float | None) -> float:
        """Where a value is drawn: at an edge if it lies beyond; NaN, so nowhere, for none."""
        if value is None or isnan(value):
            return nan
        return min(max(value, self.low), self.high)

    def places(self, values: Iterable[float | None]) -> list[float]:
        """Where values are drawn."""
        return [self.place(v) for v in values]


def fit(values: Iterable[float | None], *, log: bool | None = None) -> Scale:
    """A range for values that are at least zero; infinite ones lie at its upper edge.

    Args:
        values: All that is to be seen; NaN and None count for nothing.
        log: Whether it is logarithmic; by default where the values differ much.
    """
    known = [v for v in values if v is not None and not isnan(v)]
    finite = [v for v in known if isfinite(v) and v > 0]
    if not finite:
        return Scale(0.0, 1.0, False)
    low, high = min(finite), max(finite)
    if log is None:
        log = high > WIDE * low
    if not log:
        return Scale(0.0, 1.12 * high * (1.1 if inf in known else 1), False)
    low = max(low, high * 10.0**-DECADES)
    # What is zero stands apart from the least that is not.
    return Scale(low / (4 if min(known) < low else 1.7), high * (4 if inf in known else 1.7), True)


def fit_signed(values: Iterable[float | None]) -> Scale:
    """A linear range for values of either sign, zero within it; infinite ones lie at its edges."""
    finite = [0.0, *(v for v in values if v is not None and isfinite(v))]
    low, high = min(finite), max(finite)
    room = 0.1 * (high - low)
    return Scale(low - room, high + room, False) if room else Scale(-1.0, 1.0, False)


def fit_close(values: Iterable[float | None]) -> Scale:
    """A range around values of any sign, from zero only where they come near it."""
    known = [v for v in values if v is not None and not isnan(v)]
    finite = [v for v in known if isfinite(v)]
    if not finite:
        return Scale(0.0, 1.0, False)
    low, high = min(finite), max(finite)
    positive = [v for v in finite if v > 0]
    if low >= 0 and positive and high > WIDE * min(positive):
        return fit(known, log=True)
    room = 0.12 * (high - low) or 0.05 * abs(high) or 1.0
    if 0 <= low < 0.5 * high:
        return Scale(0.0, high + room, False)
    return Scale(low - room, high + room, False)


def set_scale(axes: "Axes", scale: Scale, axis: str = "y", *, small: bool = False) -> None:
    """Give an axis a range, with few and readable ticks; still fewer for a small panel."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    (axes.set_ylim if axis == "y" else axes.set_xlim)(scale.low, scale.high)
    if not scale.log:
        return
    (axes.set_yscale if axis == "y" else axes.set_xscale)("log")
    (axes.set_ylim if axis == "y" else axes.set_xlim)(scale.low, scale.high)
    ticks = axes.yaxis if axis == "y" else axes.xaxis
    ratio = scale.high / scale.low
    subs = (1, 2, 5) if ratio < 30 else (1, 3) if ratio < (60 if small else 3000) else (1,)
    ticks.set_major_locator(LogLocator(subs=subs, numticks=8))
    ticks.set_minor_locator(NullLocator())
    ticks.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value)))


def plain_number(value: float) -> str:
    """A tick: 0.003 rather than 3e-3, and 1e-5 rather than 1e-05."""
    if value and not 1e-4 <= abs(value) < 1e5:
        digits, _, power = f"{value:.0e}".partition("e")
        return f"{digits}e{int(power)}"
    return f"{value:g}"


def draw_curve(
    axes: "Axes", curve: Curve, scale: Scale, stroke: Stroke, style: Any = "-", width: float = 1.6
) -> None:
    """Draw means as a line and their intervals as a band."""
    draw_band(axes, curve.steps, (curve.value, curve.low, curve.high), scale, stroke, style, width)


def draw_band(
    axes: "Axes",
    x: Sequence[float],
    ends: tuple[Sequence[float | None], Sequence[float | None], Sequence[float | None]],
    scale: Scale,
    stroke: Stroke,
    style: Any = "-",
    width: float = 1.6,
    marker: str | None = None,
) -> None:
    """Draw values with their lower and upper ends, given in this order."""
    value, low, high = (scale.places(part) for part in ends)
    if not any(isfinite(v) for v in value):
        return
    axes.fill_between(x, low, high, color=stroke.colour, alpha=0.14, linewidth=0)
    # A single point has no line.
    marker = marker or (stroke.marker if sum(map(isfinite, value)) == 1 else None)
    axes.plot(
        x,
        value,
        color=stroke.colour,
        linewidth=width,
        linestyle=style,
        marker=marker,
        markersize=3.2,
        label=stroke.label,
    )


def draw_dot(
    axes: "Axes",
    mean: Mean | None,
    row: float,
    scale: Scale,
    stroke: Stroke,
    *,
    hollow: bool = False,
    label: str | None = None,
) -> None:
    """Draw a mean as a dot in a row, its interval as a line."""
    if mean is None or isnan(mean.value):
        return
    low, high = scale.place(mean.low), scale.place(mean.high)
    if isfinite(low) and isfinite(high):
        axes.plot([low, high], [row, row], color=stroke.colour, linewidth=1.6, zorder=2)
    axes.scatter(
        [scale.place(mean.value)],
        [row],
        s=34,
        marker=stroke.marker,
        facecolors="white" if hollow else stroke.colour,
        edgecolors=stroke.colour,
        linewidths=1.3,
        label=label,
        zorder=3,
        clip_on=False,
    )


def set_rows(axes: "Axes", labels: Sequence[str]) -> None:
    """Name the rows of a dot plot, the first at the top."""
    axes.set_yticks(range(len(labels)), [literal(label) for label in labels])
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0, pad=8)
    axes.grid(visible=True, axis="both")
    axes.spines["left"].set_visible(False)


def set_share(axes: "Axes", lowest: float = 0.0) -> None:
    """An axis for shares, with ticks that leave room between panels."""
    axes.set_xlim(lowest, 1)
    axes.set_xticks([0, 0.5, 1] if lowest == 0 else [lowest, 0, 1])


def mean_ends(means: Iterable[Mean | None]) -> list[float | None]:
    """All values and ends of means, to fit an axis to."""
    return [end for m in means if m is not None for end in (m.value, m.low, m.high)]


def curve_ends(curves: Iterable[Curve]) -> list[float | None]:
    """All values and ends of curves, to fit an axis to."""
    return [end for c in curves for part in (c.value, c.low, c.high) for end in part]


def edge_note(scale: Scale, values: Iterable[float | None], axis: str = "y") -> str:
    """What stands at the edges of a logarithmic axis, for its label; empty if nothing does."""
    known = [v for v in values if v is not None and not isnan(v)]
    first, last = ("lower", "upper") if axis == "y" else ("left", "right")
    parts = []
    if scale.log and any(v <= 0 for v in known):
        parts.append(f"0 at the {first} edge")
    if inf in known:
        parts.append(f"∞ at the {last} edge")
    between = "\n" if axis == "y" else " "
    return f"{between}({', '.join(parts)})" if parts else ""
