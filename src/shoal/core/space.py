"""What a search may remove: the units of a granularity and the rules about them.

A search touches masks only through this class, so a new granularity or a new constraint of an
architecture changes no search.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Self

import numpy as np

from shoal.core.errors import UsageError
from shoal.core.mask import Mask, Site

Unit = frozenset[Site]
"""The sites that one step of a search removes together."""

Constraint = Callable[[Mask], bool]
"""A rule of the architecture: whether a mask leaves a model that can be written."""


@dataclass(frozen=True)
class SearchSpace:
    """The removable units of a model, and which sets of them may go together.

    Attributes:
        depth: Number of blocks of the dense model.
        units: The units that may be removed, in the order in which ties are broken.
        constraint: A rule that every mask must satisfy, or None.
    """

    depth: int
    units: tuple[Unit, ...]
    constraint: Constraint | None = None

    @classmethod
    def of_blocks(
        cls, depth: int, protect: Iterable[int] = (), constraint: Constraint | None = None
    ) -> Self:
        """The space of whole blocks.

        Args:
            depth: Number of blocks of the dense model.
            protect: Blocks that must stay.
            constraint: A rule that every mask must satisfy.

        Raises:
            UsageError: If a protected index lies outside the model.
        """
        protected = set(protect)
        outside = sorted(p for p in protected if not 0 <= p < depth)
        if outside:
            raise UsageError(
                f"cannot protect block {outside[0]}: the model has {depth} blocks, "
                f"0 to {depth - 1}."
            )
        units = tuple(frozenset({Site(i)}) for i in range(depth) if i not in protected)
        return cls(depth, units, constraint)

    @property
    def dense(self) -> Mask:
        """The mask that removes nothing."""
        return Mask.dense(self.depth)

    def check_budget(self, k: int) -> None:
        """Refuse a number of removals that no mask of this space can have.

        Raises:
            UsageError: If `k` is not positive, leaves no block, or exceeds the removable units.
        """
        if k < 1:
            raise UsageError(f"cannot remove {k} blocks: the smallest number is 1.")
        if k >= self.depth:
            raise UsageError(
                f"cannot remove {k} of {self.depth} blocks: at least one must stay, "
                f"so the largest number is {self.depth - 1}."
            )
        if k > len(self.units):
            raise UsageError(
                f"cannot remove {k} blocks: {self.depth - len(self.units)} of {self.depth} are "
                f"protected, which leaves {len(self.units)} to choose from. "
                "Protect fewer or remove fewer."
            )

    def is_valid(self, mask: Mask) -> bool:
        """Whether the mask removes units of this space only and satisfies the constraint."""
        if mask.depth != self.depth or len(mask.kept) == 0:
            return False
        covered = frozenset().union(*(u for u in self.units if u <= mask.removed), frozenset())
        return covered == mask.removed and (self.constraint is None or self.constraint(mask))

    def removed_units(self, mask: Mask) -> list[Unit]:
        """The units that the mask removes, in the order of the space."""
        return [u for u in self.units if u <= mask.removed]

    def free_units(self, mask: Mask) -> list[Unit]:
        """The units that the mask leaves wholly in place, in the order of the space."""
        return [u for u in self.units if not u & mask.removed]

    def extensions(self, mask: Mask) -> list[Mask]:
        """The valid masks that remove one unit more."""
        grown = (mask.without(u) for u in self.free_units(mask))
        return [m for m in grown if self.is_valid(m)]

    def neighbours(self, mask: Mask) -> list[Mask]:
        """The valid masks that swap one removed unit for one that stays."""
        swapped = (
            mask.restored(out).without(into)
            for out in self.removed_units(mask)
            for into in self.free_units(mask)
        )
        return [m for m in swapped if self.is_valid(m)]

    def sample(
        self, rng: np.random.Generator, k: int, weights: Sequence[float] | None = None
    ) -> Mask:
        """Draw a valid mask of `k` units without replacement.

        Args:
            rng: Source of randomness.
            k: Number of units to remove.
            weights: One non-negative weight per unit of the space; None draws uniformly.

        Raises:
            UsageError: If no valid mask was found in 1000 draws.
        """
        self.check_budget(k)
        p = None if weights is None else np.asarray(weights, float) / np.sum(weights)
        for _ in range(1000):
            picked = rng.choice(len(self.units), size=k, replace=False, p=p)
            mask = self.dense.without(s for i in picked for s in self.units[i])
            if self.is_valid(mask) and len(self.removed_units(mask)) == k:
                return mask
        raise UsageError(
            f"no valid mask of {k} units was found in 1000 draws: the architecture's "
            "constraints leave too few. Remove fewer."
        )

    def masks(self, k: int) -> Iterator[Mask]:
        """All valid masks of `k` units, in lexicographic order of the units."""
        for units in combinations(self.units, k):
            mask = self.dense.without(s for u in units for s in u)
            if len(mask) == sum(map(len, units)) and self.is_valid(mask):
                yield mask

    def size(self, k: int) -> int:
        """Number of sets of `k` units; an upper bound where a constraint excludes some."""
        return comb(len(self.units), k)
