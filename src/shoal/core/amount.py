"""What a search must remove, as far as it matters to it: which masks are answers."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.core.units import Unit


class Budget(ABC):
    """What is to be removed from a space.

    Attributes:
        uniform: Whether all units count alike, so that masks on the way to an answer compare by
            loss alone.
    """

    uniform: ClassVar[bool]

    @abstractmethod
    def price(self, unit: Unit) -> float:
        """What removing a unit counts."""

    @abstractmethod
    def spent(self, space: SearchSpace, mask: Mask) -> float:
        """What a mask removes."""

    @abstractmethod
    def missing(self, space: SearchSpace, mask: Mask) -> float:
        """How much more has to be removed; at most 0 where the budget is met."""

    @abstractmethod
    def within(self, space: SearchSpace, mask: Mask) -> bool:
        """Whether a mask removes no more than the budget, for searches that may remove less."""

    @abstractmethod
    def is_answer(self, space: SearchSpace, mask: Mask) -> bool:
        """Whether a mask is valid, meets the budget, and removes nothing in vain."""

    @abstractmethod
    def superfluous(self, space: SearchSpace, mask: Mask) -> list[Unit]:
        """The units that a mask could keep one at a time, still valid and meeting the budget."""

    @abstractmethod
    def reachable(self, space: SearchSpace, mask: Mask) -> bool:
        """Whether removing more can still meet the budget, as far as overlaps tell."""

    @abstractmethod
    def most(self, space: SearchSpace) -> int:
        """The most units that an answer can have."""

    @abstractmethod
    def check(self, space: SearchSpace) -> None:
        """Refuse a budget that no mask of a space meets.

        Raises:
            UsageError: If it is not positive, or more than can be removed.
        """

    @abstractmethod
    def size(self, space: SearchSpace, most: int) -> int:
        """Number of answers where that is at most `most`, else a number above `most`.

        Under a count constraints are left out, as in `SearchSpace.size`.
        """

    @abstractmethod
    def masks(self, space: SearchSpace) -> Iterator[Mask]:
        """All answers, in lexicographic order of the units."""

    @abstractmethod
    def sample(self, space: SearchSpace, rng: np.random.Generator) -> Mask:
        """Draw an answer.

        Raises:
            UsageError: If none was found in 1000 draws.
        """

    def is_met(self, space: SearchSpace, mask: Mask) -> bool:
        """Whether a mask removes enough."""
        return self.missing(space, mask) <= 0

    def trimmed(self, space: SearchSpace, mask: Mask, order: Sequence[Unit]) -> Mask:
        """A mask without what it removes in vain.

        Args:
            space: What may be removed.
            mask: A mask that meets the budget.
            order: Units, the first to be put back first; others follow in the order of the space.
        """
        while could := self.superfluous(space, mask):
            mask = mask.restored(next((u for u in order if u in could), could[0]))
        return mask
