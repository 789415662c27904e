"""The settings of the interventions, and the random masks that selected sites are held against."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shoal.core.errors import UsageError
from shoal.core.mask import Mask, Part, Site
from shoal.geometry.surrogates import RIDGES

ALPHAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5)

TRIES = 50
"""Draws per control mask wanted. Where there are fewer sets of sites, all come up long before."""


@dataclass(frozen=True)
class InterventionSettings:
    """What is tried on a model.

    Attributes:
        alphas: Scales of what the sites add; 1 is the dense model, 0 removes them.
        ridges: Of the pseudo-inverse, relative as `shoal.geometry.maps.inverse_map` takes them.
        fit_ridges: Of the surrogates that are inverted; held-out R^2 chooses.
        seeds: Seeds of the random maps.
        masks: Random masks of as many other sites.
        singles: Whether each block of the model is also removed by itself.
        seed: Seed of the control masks, of the split of the texts and of the intervals.
    """

    alphas: tuple[float, ...] = ALPHAS
    ridges: tuple[float, ...] = (1e-6, 1e-3, 1e-1)
    fit_ridges: tuple[float, ...] = RIDGES
    seeds: tuple[int, ...] = (0, 1, 2)
    masks: int = 3
    singles: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if min((*self.alphas, *self.ridges, *self.fit_ridges), default=0.0) < 0:
            raise UsageError(
                f"alphas and ridges are not below 0, got alphas {self.alphas}, ridges "
                f"{self.ridges}, fit_ridges {self.fit_ridges}."
            )
        if not self.fit_ridges:
            raise UsageError("a surrogate needs at least one ridge, got no fit_ridges.")
        if self.masks < 0:
            raise UsageError(f"the number of control masks is not below 0, got {self.masks}.")


def control_masks(
    mask: Mask, count: int, seed: int = 0, sites: Sequence[Site] | None = None
) -> tuple[Mask, ...]:
    """Random masks that remove as many sites of each kind, none of them selected.

    Args:
        mask: The selected sites.
        count: Masks wanted.
        seed: Their seed.
        sites: What may be drawn; by default any block, attention or MLP that the mask leaves whole.

    Returns:
        Distinct masks in the order drawn: fewer where there are fewer, none where the model has
        not as many other sites.
    """
    wanted = Counter(site.part for site in mask)
    taken = mask.sublayers
    if sites is None:
        sites = [Site(layer, part) for layer in range(mask.depth) for part in Part]
    free = [site for site in sites if taken.isdisjoint(site.sublayers)]
    rng = np.random.default_rng(seed)
    found: dict[Mask, None] = {}
    for _ in range(TRIES * count if wanted else 0):
        drawn = _draw(free, wanted, rng)
        if drawn is not None:
            found[Mask(mask.depth, frozenset(drawn))] = None
        if len(found) == count:
            break
    return tuple(found)


def _draw(
    free: Sequence[Site], wanted: Counter[Part], rng: np.random.Generator
) -> list[Site] | None:
    """Sites of the kinds wanted, blocks first; None where this draw leaves too few."""
    found: list[Site] = []
    for part in Part:
        used = {s for site in found for s in site.sublayers}
        # An attention and an MLP of one block would make a block, another kind of mask.
        blocks = {site.layer for site in found}
        left = [
            site
            for site in free
            if site.part is part and used.isdisjoint(site.sublayers) and site.layer not in blocks
        ]
        if len(left) < wanted[part]:
            return None
        found += [left[i] for i in sorted(rng.choice(len(left), wanted[part], replace=False))]
    return found
