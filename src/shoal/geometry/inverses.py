"""Undoing blocks: inverse surrogates after kept blocks, and the random maps they are held against.

A block that stays and is followed by the inverse of its linear surrogate is cancelled as far as the
surrogate describes it (TAPIOCA, 2605.14738), so R^2 has to be read beside it. The surrogate of each
block is fitted with the inverses of the earlier ones in place: that is the input it then gets.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from shoal.geometry.bench import Bench
from shoal.geometry.collecting import Classes, collected
from shoal.geometry.interventions import mapped
from shoal.geometry.maps import AffineMap, inverse_map, random_map, rotated
from shoal.geometry.settings import InterventionSettings
from shoal.geometry.surrogates import Surrogate, fit

Maps = Mapping[int, tuple[tuple[slice, AffineMap], ...]]
"""Block -> the map after it for each class of positions."""

KINDS = {"random": random_map, "rotated": rotated}


@dataclass(frozen=True)
class Inversion:
    """Maps that undo some blocks.

    Attributes:
        ridge: Of the pseudo-inverse.
        maps: What is put after each block.
        r2: Least held-out R^2 of the surrogates.
    """

    ridge: float
    maps: Maps
    r2: float


def inversions(
    bench: Bench, layers: tuple[int, ...], settings: InterventionSettings, classes: Classes
) -> list[Inversion]:
    """Inverses of some blocks, fitted on the OOD texts; one for each ridge of the pseudo-inverse.

    Args:
        bench: The model and its tasks.
        layers: The blocks, ascending.
        settings: The ridges, and the seed of the split.
        classes: Positions that get a map each.
    """
    # Nothing is in place yet before the first block, whatever the ridge.
    first = _fitted(bench, {}, layers[0], settings, classes)
    found = []
    for ridge in settings.ridges:
        placed: dict[int, tuple[tuple[slice, AffineMap], ...]] = {}
        least = np.inf
        for layer in layers:
            fits = first if not placed else _fitted(bench, placed, layer, settings, classes)
            least = min(least, *(fitted.r2 for fitted in fits.values()))
            placed[layer] = tuple(
                (classes[name], inverse_map(fitted, ridge)) for name, fitted in fits.items()
            )
        found.append(Inversion(ridge, placed, float(least)))
    return found


def _fitted(
    bench: Bench, placed: Maps, layer: int, settings: InterventionSettings, classes: Classes
) -> dict[str, Surrogate]:
    """The surrogates of a block, one per class, with earlier inverses in place."""
    with mapped(bench.stack, placed):
        found = collected(bench.stack, bench.ood.fitting, [layer], classes, settings.seed)
    bench.done()
    return {name: fit(*pair, settings.fit_ridges) for (_, name), pair in found.items()}


def controls(maps: Maps, kind: Literal["random", "rotated"], seed: int) -> Maps:
    """Random maps in the places of others; every place has its own randomness.

    Args:
        maps: The maps whose places and sizes are taken.
        kind: A random orthogonal map of the same norm, or the same displacements turned.
        seed: Seed of all of them.
    """
    return {
        layer: tuple(
            (selector, KINDS[kind](one, _seed(seed, layer, i)))
            for i, (selector, one) in enumerate(here)
        )
        for layer, here in maps.items()
    }


def _seed(seed: int, layer: int, place: int) -> int:
    return int(np.random.SeedSequence([seed, layer, place]).generate_state(1)[0])
