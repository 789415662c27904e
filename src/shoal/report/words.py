"""How pages and figures speak: numbers, intervals, sizes."""

from math import isfinite, isnan

from shoal.core.records import Mean


def number(value: float | None, digits: int = 3) -> str:
    """A number for people: three digits, no trailing zeros, and words where there is none."""
    if value is None:
        return "–"
    if isnan(value):
        return "no number"
    if not isfinite(value):
        return "∞" if value > 0 else "−∞"
    if value and abs(value) < 1e-3:
        mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
        text = f"{mantissa}e{int(power)}"
    else:
        text = f"{value:.{digits}g}"
        if "e" in text:
            text = f"{value:,.0f}"
    return text.replace("-", "−", 1) if value < 0 else text


def interval(value: float | None, low: float | None, high: float | None, digits: int = 3) -> str:
    """A number with its interval, if it has one, whose ends have so many digits."""
    if value is None or low is None or high is None:
        return number(value)
    return f"{number(value)} [{number(low, digits)}, {number(high, digits)}]"


def mean(found: Mean | None) -> str:
    """A mean with its interval; a dash where there is none."""
    return "–" if found is None else interval(found.value, found.low, found.high)


def stacked(found: Mean | None) -> str:
    """The same with the interval in a line of its own, for tables with many columns."""
    return mean(found).replace(" [", "\n[")


def parameters(count: int) -> str:
    """A number of parameters."""
    if count < 1e6:
        return f"{count:,}"
    return f"{count / 1e9:.2f} B" if count >= 1e9 else f"{count / 1e6:.1f} M"
