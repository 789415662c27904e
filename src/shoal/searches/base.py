"""What a search is.

A search is a generator function. It yields batches of masks, is sent their evaluations in the same
order, and returns the best mask. Everything else (known evaluations, budgets, resume, progress) is
the driver's. Resuming is replaying: with the same seed a search proposes the same masks, and the
store answers those that are known.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace

SearchRun = Generator[Sequence[Mask], Sequence[Evaluation], Mask]
"""A running search."""


@dataclass(frozen=True)
class Problem:
    """What to search: remove `k` units of a space, at the least loss.

    Attributes:
        space: What may be removed.
        k: How many units to remove.
        rng: The only source of randomness.
    """

    space: SearchSpace
    k: int
    rng: np.random.Generator


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
