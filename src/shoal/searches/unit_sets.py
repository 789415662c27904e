"""Sets of units as ascending indices into the units of a space, for searches that do arithmetic."""

from collections.abc import Iterable
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from shoal.core.mask import Mask
from shoal.core.space import SearchSpace

UnitSet = tuple[int, ...]
"""Indices of units, ascending."""


def mask_of(space: SearchSpace, units: Iterable[int]) -> Mask | None:
    """The mask that removes some units, or None where they may not go together.

    Units that overlap, or that cover another unit between them, may not: the mask would remove
    another number of units.
    """
    chosen = tuple(sorted(units))
    mask = space.dense.without(site for i in chosen for site in space.units[i])
    return mask if space.decomposed(mask) == chosen and space.is_valid(mask) else None


def units_of(space: SearchSpace, mask: Mask) -> UnitSet:
    """The indices of the units that a mask removes."""
    return space.decomposed(mask) or ()


def indicators(sets: Iterable[UnitSet], units: int) -> NDArray[np.bool_]:
    """Sets, of whatever sizes, as rows of a binary matrix [sets, units]."""
    chosen = list(sets)
    x = np.zeros((len(chosen), units), bool)
    rows = np.repeat(np.arange(len(chosen)), [len(units) for units in chosen])
    x[rows, np.fromiter(chain.from_iterable(chosen), np.intp, len(rows))] = True
    return x


def sets_of(rows: NDArray[np.bool_]) -> list[UnitSet]:
    """The distinct sets that rows of a binary matrix stand for, in the order of the rows."""
    return list(dict.fromkeys(tuple(np.flatnonzero(row).tolist()) for row in rows))


def swapped(chosen: UnitSet, units: int) -> NDArray[np.intp]:
    """All sets that differ by one swap, a row of ascending indices each.

    The first unit is swapped for each of the others in turn, then the second, and so on.
    """
    outside = np.setdiff1d(np.arange(units), chosen)
    rows = np.tile(np.array(chosen, np.intp), (len(chosen) * len(outside), 1))
    places = np.repeat(np.arange(len(chosen)), len(outside))
    rows[np.arange(len(rows)), places] = np.tile(outside, len(chosen))
    return np.sort(rows, axis=1)
