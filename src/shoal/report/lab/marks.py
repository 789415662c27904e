"""How a lab run is drawn: colours, small panels, and axes for sigma, gains and ratios."""

from collections.abc import Iterable, Iterator, Sequence
from math import isfinite, isnan, log
from typing import TYPE_CHECKING, Any

from shoal.lab.records import Shift
from shoal.report.marks import (
    AMBER,
    GREEN,
    GREY,
    PURPLE,
    WIDTH,
    Scale,
    Stroke,
    plain_number,
    set_scale,
)
from shoal.report.style import ACCENT, INK, MAIN, light_grid, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DENSE = Stroke("dense model", MAIN, "o")
BEST = Stroke("BEST", ACCENT, "D")
SINGLE = Stroke("best single block", GREEN, "^")
RANDOM_BEST = Stroke("best of as many random masks as TALE tried", PURPLE, "s")
RESCALED = Stroke("dense model, output rescaled", AMBER, "v")
OTHERS = Stroke("as many other blocks", GREY, ".")

MODEL_COLOURS = (MAIN, GREEN, PURPLE, AMBER, "#0e7490", "#9d174d", GREY)
MODEL_MARKERS = ("o", "s", "^", "v", "P", "X", "d")

LOWEST_GAIN = -1.0
"""Gains below this, twice the dense loss, stand at the lower edge."""

CLOSE = 0.085
"""Ticks closer than this share of the axis are left out."""


def model_strokes(names: Sequence[str]) -> dict[str, Stroke]:
    """Model -> how it is drawn; colours come round again where there are many."""
    many = len(MODEL_COLOURS)
    return {
        name: Stroke(name, MODEL_COLOURS[i % many], MODEL_MARKERS[i % many])
        for i, name in enumerate(names)
    }


def panels(
    count: int, columns: int, height: float, *, extra: float = 0.5
) -> tuple["Figure", list["Axes"]]:
    """A figure of small panels, row by row.

    Args:
        count: Panels.
        columns: In a row, at most.
        height: Of a panel in inches.
        extra: Inches for the legend.
    """
    columns = min(columns, count)
    lines = -(-count // columns)
    figure = new_figure(WIDTH if columns > 1 else 0.62 * WIDTH, height * lines + extra)
    return figure, [figure.add_subplot(lines, columns, i + 1) for i in range(count)]


def panel_legend(figure: "Figure", axes: Iterable["Axes"], columns: int = 4) -> None:
    """One legend below, of all that is drawn in some panels."""
    found: dict[str, Any] = {}
    for one in axes:
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        figure.legend(
            list(found.values()),
            list(found),
            loc="outside lower left",
            ncols=columns,
            fontsize=8,
        )


def sigma_axis(axes: "Axes", sigmas: Iterable[float], trained: float | None) -> None:
    """A logarithmic axis with ticks at what was tested, and a line at the width of training."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    every = sorted({*sigmas, *([trained] if trained is not None else [])})
    low, high = every[0] / 1.15, every[-1] * 1.15
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    ticks = [] if trained is None else [trained]
    width = log(high / low)
    for sigma in [every[-1], *every]:
        if all(abs(log(sigma / tick)) >= CLOSE * width for tick in ticks):
            ticks.append(sigma)
    axes.xaxis.set_major_locator(FixedLocator(sorted(ticks)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value)))
    if trained is not None:
        axes.axvline(
            trained, color=INK, linewidth=0.9, linestyle=(0, (2, 2)), zorder=0, label="training"
        )


def gain_scale(values: Iterable[float | None], floor: float = LOWEST_GAIN) -> Scale:
    """A range for gains, which has zero in it and ends where they end, or at the floor.

    Args:
        values: All gains and their ends; no gain is above 1.
        floor: Gains below this stand at the lower edge.
    """
    known = [v for v in values if v is not None and isfinite(v)]
    low, high = max(min([0.0, *known]), floor), min(max([0.0, *known]), 1.0)
    room = 0.06 * max(high - low, 0.3)
    return Scale(low - room, high + room, False)


def gain_axis(axes: "Axes", scale: Scale, axis: str = "y") -> None:
    """An axis of gains in per cent, with a line at none."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    set_scale(axes, scale, axis)
    ticks = axes.yaxis if axis == "y" else axes.xaxis
    ticks.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
    ticks.set_major_formatter(FuncFormatter(lambda value, _: percent(value)))
    line = axes.axhline if axis == "y" else axes.axvline
    line(0, color=INK, linewidth=0.9, zorder=1)
    light_grid(axes)


def percent(value: float) -> str:
    """A share in per cent, as a tick; no more digits than it has."""
    return f"{100 * value:.4g}%".replace("-", "−")


def below_note(scale: Scale, values: Iterable[float | None]) -> str:
    """What stands at the lower edge of an axis of gains; empty if nothing does."""
    if any(v is not None and v < scale.low for v in values):
        return f"\n(below {percent(LOWEST_GAIN)}: at the lower edge)"
    return ""


def ratio_axis(axes: "Axes", scale: Scale, axis: str = "y") -> None:
    """A logarithmic axis of ratios, with a line at 1 and round ticks however narrow it is."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    narrow = scale.high / scale.low < 4
    set_scale(axes, scale, axis)
    if narrow:
        ticks = axes.yaxis if axis == "y" else axes.xaxis
        ticks.set_major_locator(FixedLocator(list(_round_ratios(scale))))
        ticks.set_minor_locator(NullLocator())
        ticks.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
    line = axes.axhline if axis == "y" else axes.axvline
    line(1, color=INK, linewidth=0.9, zorder=1)


def _round_ratios(scale: Scale) -> Iterator[float]:
    steps = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5)
    step = next((s for s in steps if (scale.high - scale.low) / s <= 6), 1.0)
    first, last = int(scale.low / step) + 1, int(scale.high / step)
    yield from (i * step for i in range(first, last + 1))


def ratio_scale(values: Iterable[float | None], most: float = 1000.0) -> Scale:
    """A range for ratios around 1, at most so far up and down."""
    logs = [abs(log(v)) for v in values if v is not None and not isnan(v) and 0 < v < float("inf")]
    far = min(max([0.05, *logs]) * 1.08, log(most))
    return Scale(2.718281828459045**-far, 2.718281828459045**far, True)


def sigma_label(shifts: Iterable[Shift]) -> str:
    """What sigma is, for an axis."""
    kinds = {str(s.family.get("coefficients", "U"))[:1].upper() for s in shifts}
    if kinds == {"N"}:
        return "σ: standard deviation of the coefficients"
    return "σ: half width of the coefficients" if kinds == {"U"} else "σ of the coefficients"
