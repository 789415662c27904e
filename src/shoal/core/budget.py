"""How much a search removes: a number of units, or a weight.

A budget says which masks are answers. For a count these are the masks of exactly k units. For a
weight (parameters, measured seconds) every sub-layer has a price, and an answer removes at least a
target without removing a unit that it could keep: put back any one, and what is left misses the
target or is no valid mask. Answers then have different numbers of units.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, islice
from math import fsum, isfinite
from typing import ClassVar

import numpy as np

from shoal.core import tiling
from shoal.core.amount import Budget
from shoal.core.covering import covers, heaviest
from shoal.core.errors import UsageError
from shoal.core.mask import Mask, sublayers
from shoal.core.space import DRAWS, SearchSpace
from shoal.core.units import Unit, plural

__all__ = ["Budget", "CountBudget", "Wanted", "WeightBudget", "budget_of"]

ROUNDING = 1e-9
"""Share of a target that may be missing: prices and targets are sums of rounded numbers."""

PATIENCE = 20
"""Draws that miss the target before units are taken only where the rest can still reach it."""


@dataclass(frozen=True)
class CountBudget(Budget):
    """Exactly `k` units.

    Attributes:
        k: How many.
    """

    k: int
    uniform: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"{self.k} units"

    def price(self, unit: Unit) -> float:
        """One."""
        return 1.0

    def spent(self, space: SearchSpace, mask: Mask) -> float:
        """How many units a mask removes."""
        return float(len(space.removed_units(mask)))

    def missing(self, space: SearchSpace, mask: Mask) -> float:
        """How many units more."""
        return self.k - self.spent(space, mask)

    def within(self, space: SearchSpace, mask: Mask) -> bool:
        """Whether it is no more than `k` units."""
        return self.missing(space, mask) >= 0

    def is_answer(self, space: SearchSpace, mask: Mask) -> bool:
        """Whether a mask is valid and removes exactly `k` units."""
        return self.missing(space, mask) == 0 and space.is_valid(mask)

    def superfluous(self, space: SearchSpace, mask: Mask) -> list[Unit]:
        """None: a mask of k units meets the budget with all of them only."""
        return []

    def most(self, space: SearchSpace) -> int:
        """Exactly `k`."""
        return self.k

    def check(self, space: SearchSpace) -> None:
        """As `SearchSpace.check_budget`."""
        space.check_budget(self.k)

    def size(self, space: SearchSpace, most: int) -> int:
        """Number of sets of `k` units that do not overlap."""
        return space.size(self.k)

    def masks(self, space: SearchSpace) -> Iterator[Mask]:
        """All valid masks of `k` units."""
        return space.masks(self.k)

    def reachable(self, space: SearchSpace, mask: Mask) -> bool:
        """Whether enough units are left apart from each other."""
        if not space.overlapping:
            return True  # the order of removals matters under constraints only
        left = tuple(space.spans[i] for i in range(len(space.units)) if space.is_free(i, mask))
        return tiling.most(left) >= self.missing(space, mask)

    def sample(self, space: SearchSpace, rng: np.random.Generator) -> Mask:
        """Draw a valid mask of `k` units, each with the same chance."""
        return space.sample(rng, self.k)


@dataclass(frozen=True)
class WeightBudget(Budget):
    """At least a weight.

    Attributes:
        prices: What removing each sub-layer counts, in the row attention 0, MLP 0, attention 1, ...
        target: How much to remove; the most, for a search that may remove less.
        what: What prices are, in messages.
    """

    prices: tuple[float, ...]
    target: float
    what: str = "parameters"
    uniform: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not (isfinite(self.target) and self.target > 0):
            raise UsageError(
                f"cannot remove {_number(self.target)} {self.what}: it must be a number above 0."
            )
        wrong = [price for price in self.prices if not (isfinite(price) and price >= 0)]
        if wrong:
            raise UsageError(
                f"a sub-layer cannot have {wrong[0]} {self.what}: prices are numbers from 0 on."
            )

    def __str__(self) -> str:
        return f"{_number(self.target)} {self.what}"

    @property
    def enough(self) -> float:
        """The target, less what rounding may take away."""
        return self.target * (1 - ROUNDING)

    def price(self, unit: Unit) -> float:
        """The sum of the prices of its sub-layers."""
        return fsum(self.prices[site.position] for site in sublayers(unit))

    def spent(self, space: SearchSpace, mask: Mask) -> float:
        """The sum of the prices of everything that is removed."""
        return fsum(self.prices[place] for place in mask.places)

    def missing(self, space: SearchSpace, mask: Mask) -> float:
        """How much more has to be removed; at most 0 where the budget is met."""
        return self.enough - self.spent(space, mask)

    def within(self, space: SearchSpace, mask: Mask) -> bool:
        """Whether it is no more than the target."""
        return self.spent(space, mask) <= self.target * (1 + ROUNDING)

    def is_answer(self, space: SearchSpace, mask: Mask) -> bool:
        """Whether a mask is valid, meets the budget, and removes nothing in vain."""
        valid = space.is_valid(mask) and self.is_met(space, mask)
        return valid and not self.superfluous(space, mask)

    def superfluous(self, space: SearchSpace, mask: Mask) -> list[Unit]:
        """The units that a mask could keep one at a time, still valid and meeting the budget."""
        missing = self.missing(space, mask)
        if missing > 0:
            return []
        could = [u for u in space.removed_units(mask) if missing + self.price(u) <= 0]
        if space.constraint is None:
            return could
        return [u for u in could if space.is_valid(mask.restored(u))]

    def most(self, space: SearchSpace) -> int:
        """The most units that an answer can have: one more than what misses the target."""
        ascending = sorted(p for p in map(self.price, space.units) if p > 0)
        short = sum(weight < self.enough for weight in accumulate(ascending[1:]))
        return min(1 + short, tiling.most(space.spans))

    def check(self, space: SearchSpace) -> None:
        """Refuse a target above what can go together while one sub-layer stays.

        Raises:
            UsageError: If no mask meets it. Constraints are not considered; `sample` reports it
                where they leave none.
        """
        if len(self.prices) != 2 * space.depth:
            raise UsageError(
                f"a model of {space.depth} blocks has {2 * space.depth} sub-layers, but "
                f"{len(self.prices)} prices were given. Give one per attention and MLP."
            )
        reach = heaviest(space.spans, tuple(map(self.price, space.units)), 2 * space.depth)
        if reach < self.enough:
            raise UsageError(
                f"cannot remove {self}: the {len(space.units)} {plural(space.noun)} that may go "
                f"have {_number(max(reach, 0.0))} together while one sub-layer stays. Protect "
                "fewer or remove less."
            )

    def size(self, space: SearchSpace, most: int) -> int:
        """Number of answers where that is at most `most`, else some number above."""
        return _counted(self, space).up_to(most)

    def masks(self, space: SearchSpace) -> Iterator[Mask]:
        """All answers, in lexicographic order of the units."""
        prices = tuple(map(self.price, space.units))
        free = space.constraint is None

        def built(chosen: tuple[int, ...]) -> Mask:
            return space.dense.without(s for i in chosen for s in space.units[i])

        def forbidden(chosen: tuple[int, ...]) -> bool:
            return not free and not space.is_valid(built(chosen))

        for chosen in covers(space.spans, prices, self.enough, forbidden):
            spared = sum(prices[i] for i in chosen) - min(prices[i] for i in chosen)
            if free and spared > self.target:
                continue  # the cheapest is in vain, and no constraint can need it
            mask = built(chosen)
            if space.decomposed(mask) == chosen and self.is_answer(space, mask):
                yield mask

    def reachable(self, space: SearchSpace, mask: Mask) -> bool:
        """Whether what is left weighs enough while one sub-layer stays."""
        missing, prices = self.missing(space, mask), tuple(map(self.price, space.units))
        return heaviest(space.spans, prices, 2 * space.depth, mask.places) >= missing

    def sample(self, space: SearchSpace, rng: np.random.Generator) -> Mask:
        """Draw an answer: units in random order until the target is reached, without any in vain.

        Raises:
            UsageError: If none was found in 1000 draws.
        """
        self.check(space)
        for draw in range(DRAWS):
            order = rng.permutation(len(space.units)).tolist()
            # Some constraints bind from the first unit on, others allow nothing in between.
            mask = self._filled(space, order, surely=draw >= PATIENCE, stepwise=draw % 2 == 0)
            if self.is_met(space, mask) and space.is_valid(mask):
                put_back = rng.permutation(len(space.units)).tolist()
                return self.trimmed(space, mask, [space.units[i] for i in put_back])
        raise UsageError(
            f"no valid mask that removes {self} was found in {DRAWS} draws: the architecture's "
            "constraints leave too few. Remove less."
        )

    def _filled(
        self, space: SearchSpace, order: Sequence[int], *, surely: bool, stepwise: bool
    ) -> Mask:
        """Remove units in some order until the target is reached, as far as they go together.

        Args:
            space: What may be removed.
            order: Indices of units.
            surely: Pass over units after which the rest cannot reach the target.
            stepwise: Pass over units after which the mask is not valid.
        """
        mask = space.dense
        for i in order:
            if self.is_met(space, mask) and space.is_valid(mask):
                break
            grown = mask.without(space.units[i])
            fits = space.is_free(i, mask) and not (stepwise and not space.is_valid(grown))
            if fits and not (surely and not self.reachable(space, grown)):
                mask = grown
        return mask


Wanted = int | Budget
"""A budget, or a number of units."""


def budget_of(wanted: Wanted) -> Budget:
    """The budget that is meant: a number is one of units."""
    return wanted if isinstance(wanted, Budget) else CountBudget(wanted)


class _Counted:
    """Counts answers as far as anyone has asked."""

    def __init__(self, answers: Iterator[Mask]) -> None:
        self._answers, self._count = answers, 0

    def up_to(self, most: int) -> int:
        self._count += sum(1 for _ in islice(self._answers, max(most + 1 - self._count, 0)))
        return self._count


@lru_cache(maxsize=16)
def _counted(budget: WeightBudget, space: SearchSpace) -> _Counted:
    return _Counted(budget.masks(space))


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
