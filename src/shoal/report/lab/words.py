"""How a lab run speaks: gains in per cent, what is removed, counts of cells."""

from collections.abc import Mapping, Sequence
from math import isnan

from shoal.core.mask import Mask
from shoal.core.records import Mean
from shoal.lab.study import Claim
from shoal.report.words import number

TONES = {"holds": "good", "holds in part": "fair", "does not hold here": "bad"}
"""Answer -> how its card is coloured; what was not tested is plain."""


def share(value: float | None) -> str:
    """A share in per cent."""
    return number(value) if value is None or isnan(value) else f"{number(100 * value)}%"


def gain(found: Mean | None) -> str:
    """A gain in per cent with its interval, if it has one; a dash where there is none."""
    if found is None or found.low is None or found.high is None:
        return share(None if found is None else found.value)
    return f"{share(found.value)} [{share(found.low)}, {share(found.high)}]"


def stacked_gain(found: Mean | None) -> str:
    """The same with the interval in a line of its own."""
    return gain(found).replace(" [", "\n[")


def removed(mask: Mask) -> str:
    """What a mask removes."""
    return str(mask).removeprefix("-[").removesuffix("]") if mask else "nothing"


def supporting(claim: Claim) -> str:
    """How many cells support a claim."""
    return f"{sum(e.supports for e in claim.evidence)} of {len(claim.evidence)}"


def listed(parts: Sequence[str]) -> str:
    """`a, b and c`."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def counted(counts: Mapping[str, int]) -> str:
    """`3 closer, 1 further`; what does not occur is left out."""
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)
