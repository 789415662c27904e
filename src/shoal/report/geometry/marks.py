"""How a geometry is drawn: colours of tasks and of sites, removed blocks along an axis."""

from collections.abc import Iterable
from math import inf, isfinite, log, nan
from typing import TYPE_CHECKING, Any

from shoal.core.mask import Mask, Part
from shoal.core.records import Mean
from shoal.geometry.records import Geometry, Profile
from shoal.report.marks import GREEN, GREY, PURPLE, Stroke
from shoal.report.style import ACCENT, FAINT, INK, MAIN

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIDES = {
    "id": Stroke("ID", MAIN, "o"),
    "id_pruned": Stroke("ID, pruned", MAIN, "o"),
    "ood": Stroke("OOD", ACCENT, "s"),
    "ood_pruned": Stroke("OOD, pruned", GREEN, "^"),
}
"""Tasks and models; what is pruned is dashed."""

LINES: dict[str, tuple[Any, float]] = {
    "id": ("-", 1.6),
    "id_pruned": ((0, (4, 2)), 0.9),
    "ood": ("-", 1.6),
    "ood_pruned": ((0, (4, 2)), 1.8),
}
"""Style and width of their lines."""

KINDS = {
    "norm": "Norm",
    "distance": "Distance",
    "cosine": "Cosine distance",
    "last_norm": "Norm, last",
    "last_distance": "Distance, last",
    "last_cosine": "Cosine distance, last",
}
"""Profiles."""

DENSE = Stroke("dense", INK, "s")
SELECTED = Stroke("selected", PURPLE, "D")
OTHERS = Stroke("not selected", GREY, "o")

Ends = tuple[list[float | None], list[float | None], list[float | None]]


def profile_ends(profile: Profile, kind: str) -> Ends:
    """Values, lower and upper ends of a profile by depth; ends are None where there are none."""
    found: tuple[Mean | float | None, ...] = getattr(profile, kind)
    means = [m if isinstance(m, Mean) else None for m in found]
    return (
        [m.value if isinstance(m, Mean) else m for m in found],
        [None if m is None else m.low for m in means],
        [None if m is None else m.high for m in means],
    )


def log_ratio(one: float | None, other: float | None) -> float:
    """log(one / other); NaN where either is not above 0 or both are infinite."""
    if one is None or other is None or not (one > 0 and other > 0):
        return nan
    if isfinite(one) and isfinite(other):
        return log(one) - log(other)
    return nan if one == other else inf if one == inf else -inf


def shade(axes: "Axes", mask: Mask | None, start: float, label: str) -> None:
    """Shade what a plan removes; an attention is the first half of its block, an MLP the second.

    Args:
        axes: Where.
        mask: The removed sites.
        start: Where block 0 begins: 0 on an axis of depths, -0.5 on one of blocks.
        label: For the legend.
    """
    first, last = {Part.ATTN: (0.0, 0.5), Part.MLP: (0.5, 1.0)}, (0.0, 1.0)
    for i, site in enumerate(mask or ()):
        low, high = first.get(site.part, last)
        axes.axvspan(
            start + site.layer + low,
            start + site.layer + high,
            color=FAINT,
            alpha=0.28,
            linewidth=0,
            label=None if i else label,
        )


def whole_ticks(axes: "Axes", low: float, high: float) -> None:
    """A range whose ticks are whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))


def removed_layers(found: Geometry) -> frozenset[int]:
    """Blocks that the plan removes, wholly or in part."""
    return frozenset(site.layer for site in found.mask or ())


def classes(labels: Iterable[str]) -> list[str]:
    """Classes of positions, in the order in which they come."""
    return list(dict.fromkeys(labels))


def class_title(name: str) -> str:
    """What a class of positions is called above a panel."""
    return "All positions" if name == "all" else f"{name} positions"
