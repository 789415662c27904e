"""What a search is.

A search is a generator function. It yields batches of masks, is sent their evaluations in the same
order, and returns the best mask. Everything else (known evaluations, budgets, racing, resume,
progress) is the driver's. Resuming is replaying: with the same seed a search proposes the same
masks, and the store answers those that are known.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from shoal.core.budget import Budget
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace


class Signals(Protocol):
    """What a search may know about the dense model besides losses; each is computed when asked.

    All follow from one pass over the calibration data, or from one pass with gradients.
    """

    def units(self, name: str) -> Sequence[float]:
        """A state score per unit of the space; the unit with the lowest is needed least.

        Args:
            name: A score of `shoal.config.searches.Rank` other than `loss`.
        """
        ...

    def windows(self, name: str, length: int) -> Sequence[float]:
        """A state score per window of consecutive blocks, for the starts 0 to depth - length.

        Args:
            name: As for `units`; a score that knows no windows adds up those of the blocks.
            length: Blocks in a window.
        """
        ...

    def gradients(self) -> NDArray[np.float64]:
        """Derivative of each example's loss by each unit's gate, at the dense model [m, N]."""
        ...


class Contest(Sequence[Mask]):
    """A batch of which only the best few matter: the others may be judged on part of the data.

    The evaluations sent back are in order; those of masks that were dropped early are incomplete
    and rank after all others.

    Args:
        masks: The masks.
        winners: How many of the best must be known exactly.
    """

    def __init__(self, masks: Iterable[Mask], winners: int) -> None:
        self.masks, self.winners = tuple(masks), winners

    @overload
    def __getitem__(self, index: int) -> Mask: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Mask, ...]: ...
    def __getitem__(self, index: int | slice) -> Mask | tuple[Mask, ...]:
        return self.masks[index]

    def __len__(self) -> int:
        return len(self.masks)


@dataclass(frozen=True)
class Found:
    """A result with something to say about it.

    Attributes:
        mask: The mask.
        details: What the plan should record besides it; JSON values.
    """

    mask: Mask
    details: dict[str, Any] = field(default_factory=dict)


class OutOfBudget(Exception):
    """Thrown into a search when its budget has ended.

    A search may catch it around its `yield` and return the best it has; one that does not gets
    the best mask that the driver has seen.
    """


SearchRun = Generator[Sequence[Mask], Sequence[Evaluation], Mask | Found]
"""A running search."""


@dataclass(frozen=True)
class Problem:
    """What to search: remove what a budget asks for, at the least loss.

    Attributes:
        space: What may be removed.
        budget: How much to remove; the most that may be, for a search without a fixed count.
        rng: The only source of randomness.
        signals: What may be asked about the dense model.
    """

    space: SearchSpace
    budget: Budget
    rng: np.random.Generator
    signals: Signals

    @property
    def k(self) -> int:
        """How many units to remove; under a weight the most units that an answer can have."""
        return self.budget.most(self.space)

    def extensions(self, mask: Mask) -> list[Mask]:
        """The valid masks that remove one unit more, from which the budget can still be met."""
        grown = self.space.extensions(mask)
        return [m for m in grown if self.budget.reachable(self.space, m)]

    def is_answer(self, mask: Mask) -> bool:
        """Whether a mask may be the result of a search with a fixed count."""
        return self.budget.is_answer(self.space, mask)


Search = Callable[[Problem, Any], SearchRun]
"""A search algorithm; its second argument is its own config."""


def best_of(evaluations: Sequence[Evaluation]) -> Evaluation:
    """The evaluation with the least loss; the first of equals, and one that is not finite last."""
    return min(evaluations, key=lambda e: e.rank_key)


def batches(masks: Iterable[Mask], size: int) -> Iterator[list[Mask]]:
    """Cut a stream of masks into lists of at most `size`, without running ahead of it."""
    stream = iter(masks)
    while batch := list(islice(stream, size)):
        yield batch
