"""What a search may remove: the units of a granularity and the rules about them.

A search touches masks only through this class, so a new granularity or a new constraint of an
architecture changes no search.

Units may overlap: block 3 shares its attention with the half step before it. A mask is taken apart
into units from its first sub-layer to its last, the widest unit first, so it always consists of the
same ones; a set of blocks and half steps can be taken apart in one way only.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from shoal.core import tiling
from shoal.core.errors import UsageError
from shoal.core.mask import Mask
from shoal.core.units import Unit, block_units, plural

Constraint = Callable[[Mask], bool]
"""A rule of the architecture: whether a mask leaves a model that can be written."""

DRAWS = 1000
"""Draws after which a valid mask is taken not to exist."""


@dataclass(frozen=True)
class SearchSpace:
    """The removable units of a model, and which sets of them may go together.

    Attributes:
        depth: Number of blocks of the dense model.
        units: The units that may be removed, in the order in which ties are broken.
        constraint: A rule that every mask must satisfy, or None.
        noun: What one unit is called in messages.
    """

    depth: int
    units: tuple[Unit, ...]
    constraint: Constraint | None = None
    noun: str = "block"

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
        return cls(depth, block_units(depth, protect), constraint)

    @property
    def dense(self) -> Mask:
        """The mask that removes nothing."""
        return Mask.dense(self.depth)

    @cached_property
    def spans(self) -> tuple[tiling.Span, ...]:
        """The run of sub-layers that each unit covers."""
        return tuple(tiling.span_of(unit) for unit in self.units)

    @cached_property
    def overlapping(self) -> bool:
        """Whether some two units share a sub-layer."""
        return sum(stop - start for start, stop in self.spans) > len(
            {place for span in self.spans for place in range(*span)}
        )

    def check_budget(self, k: int) -> None:
        """Refuse a number of removals that no mask of this space can have.

        Raises:
            UsageError: If `k` is not positive, leaves nothing, or exceeds the removable units.
        """
        many, units = plural(self.noun), len(self.units)
        if k < 1:
            raise UsageError(f"cannot remove {k} {many}: the smallest number is 1.")
        if k >= self.depth and not self.of_sublayers:
            raise UsageError(
                f"cannot remove {k} of {self.depth} {many}: at least one must stay, "
                f"so the largest number is {self.depth - 1}."
            )
        if k > units and not self.of_sublayers and not self.overlapping:
            raise UsageError(
                f"cannot remove {k} {many}: {self.depth - units} of {self.depth} are "
                f"protected, which leaves {units} to choose from. Protect fewer or remove fewer."
            )
        if self.size(k) == 0:
            raise UsageError(
                f"cannot remove {k} {many}: of the {units} that may go, at most "
                f"{self._most} can go together. Protect fewer or remove fewer."
            )

    @property
    def of_sublayers(self) -> bool:
        """Whether units are single sub-layers, of which a model has two per block."""
        return bool(self.units) and all(stop - start == 1 for start, stop in self.spans)

    @cached_property
    def _most(self) -> int:
        return tiling.most(self.spans)

    def decomposed(self, mask: Mask) -> tuple[int, ...] | None:
        """The units that a mask consists of, as ascending indices; None where it does not."""
        if mask not in self._known:
            self._known[mask] = tiling.tiled(mask.places, self._starting)
        return self._known[mask]

    @cached_property
    def _known(self) -> dict[Mask, tuple[int, ...] | None]:
        return {}

    @cached_property
    def _starting(self) -> tiling.Starting:
        return tiling.by_start(self.spans)

    def is_valid(self, mask: Mask) -> bool:
        """Whether the mask removes units of this space only and satisfies the constraint."""
        if mask.depth != self.depth or len(mask.kept) == 0 or self.decomposed(mask) is None:
            return False
        return self.constraint is None or self.constraint(mask)

    def removed_units(self, mask: Mask) -> list[Unit]:
        """The units that the mask removes, in the order of the space."""
        return [self.units[i] for i in self.decomposed(mask) or ()]

    def free_units(self, mask: Mask) -> list[Unit]:
        """The units that the mask leaves wholly in place, in the order of the space."""
        return [unit for i, unit in enumerate(self.units) if self.is_free(i, mask)]

    def is_free(self, unit: int, mask: Mask) -> bool:
        """Whether a mask removes nothing of the unit with an index."""
        return mask.places.isdisjoint(range(*self.spans[unit]))

    def extensions(self, mask: Mask) -> list[Mask]:
        """The valid masks that remove one unit more."""
        grown = (mask.without(u) for u in self.free_units(mask))
        return [m for m in grown if self.is_valid(m)]

    def neighbours(self, mask: Mask) -> list[Mask]:
        """The valid masks that swap one removed unit for another that then fits."""
        swapped = {
            other.without(into): None
            for out in self.removed_units(mask)
            for other in [mask.restored(out)]
            for into in self.free_units(other)
            if into != out
        }
        count = len(self.removed_units(mask))
        return [
            m
            for m in swapped
            if m != mask and self.is_valid(m) and len(self.removed_units(m)) == count
        ]

    def sample(
        self, rng: np.random.Generator, k: int, weights: Sequence[float] | None = None
    ) -> Mask:
        """Draw a valid mask of `k` units without replacement.

        Args:
            rng: Source of randomness.
            k: Number of units to remove.
            weights: One non-negative weight per unit of the space; None draws every set of units
                with the same chance.

        Raises:
            UsageError: If no valid mask was found in 1000 draws.
        """
        self.check_budget(k)
        p = None if weights is None else np.asarray(weights, float) / np.sum(weights)
        for _ in range(DRAWS):
            if p is None and self.overlapping:
                picked = tiling.drawn(self.spans, k, rng)
            else:
                picked = rng.choice(len(self.units), size=k, replace=False, p=p).tolist()
            mask = self.dense.without(s for i in picked for s in self.units[i])
            if self.is_valid(mask) and len(self.removed_units(mask)) == k:
                return mask
        raise UsageError(
            f"no valid mask of {k} units was found in {DRAWS} draws: the architecture's "
            "constraints leave too few. Remove fewer."
        )

    def masks(self, k: int) -> Iterator[Mask]:
        """All valid masks of `k` units, in lexicographic order of the units."""
        for chosen in tiling.disjoint(self.spans, k):
            mask = self.dense.without(s for i in chosen for s in self.units[i])
            if self.is_valid(mask) and self.decomposed(mask) == chosen:
                yield mask

    def size(self, k: int) -> int:
        """Number of sets of `k` units that do not overlap, of which constraints allow a part."""
        return tiling.count(self.spans, k)
