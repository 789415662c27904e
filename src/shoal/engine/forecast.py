"""What a search will evaluate, found by running it on made-up losses."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from shoal.config.searches import SearchConfig
from shoal.core.budget import Wanted
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.engine.driver import checked
from shoal.engine.trie import naive_passes, shared_passes
from shoal.searches.base import Contest, Problem

EXAMPLES = 8
"""Examples behind made-up gradients."""


@dataclass(frozen=True)
class Forecast:
    """What a search will cost.

    Attributes:
        evaluations: Distinct masks that the search asks for; the dense one comes on top.
        shared: Block passes with shared prefixes, per micro-batch, those of the dense one included.
        naive: The same with one forward per mask.
        largest_batch: Most masks in one batch.
        signals: Names of the state scores and gradients that the search asks for.
        at_most: Whether the search may well end sooner.
        cut: Whether a budget ends it before it is through.
        contests: Batches of which only the best few matter, where racing can save.
    """

    evaluations: int
    shared: float
    naive: float
    largest_batch: int
    signals: tuple[str, ...] = ()
    at_most: bool = False
    cut: bool = False
    contests: int = 0


@dataclass
class MadeUpSignals:
    """Noise in place of signals; remembers what was asked."""

    space: SearchSpace
    noise: random.Random
    asked: dict[str, None] = field(default_factory=dict)

    def units(self, name: str) -> Sequence[float]:
        """Noise."""
        self.asked[name] = None
        return [self.noise.random() for _ in self.space.units]

    def windows(self, name: str, length: int) -> Sequence[float]:
        """Noise."""
        self.asked[name] = None
        return [self.noise.random() for _ in range(self.space.depth - length + 1)]

    def gradients(self) -> NDArray[np.float64]:
        """Noise."""
        self.asked["gradients"] = None
        rows = [[self.noise.gauss(0, 1) for _ in self.space.units] for _ in range(EXAMPLES)]
        return np.asarray(rows)


def forecast(
    config: SearchConfig, space: SearchSpace, k: Wanted, seed: int, most: int | None = None
) -> Forecast:
    """Run a search on made-up losses to see how much it evaluates.

    Under a weight that depends on how many units it takes, and so on the losses: the forecast is
    then that of one case.

    Args:
        config: Which search.
        space: What may be removed.
        k: How many units to remove, or another budget; the most, for a search without a fixed
            count.
        seed: Seed of the search.
        most: Evaluations after which it is stopped.

    Raises:
        BudgetError: If the search itself finds the problem too large.
        UsageError: If no mask of the space meets a weight.
    """
    noise = random.Random(seed)
    signals = MadeUpSignals(space, noise)
    seen: dict[Mask, None] = {}
    shared = naive = float(space.depth)
    largest, cut, contests = 1, False, 0
    search = config.load()
    problem = Problem(space, checked(config, space, k), np.random.default_rng(seed), signals)
    run = search(problem, config.rehearsal())
    try:
        masks = next(run)
        while not cut:
            new = [m for m in dict.fromkeys(masks) if m not in seen and m != space.dense]
            if most is not None and len(seen) + len(new) > most:
                new, cut = new[: most - len(seen)], True
            seen |= dict.fromkeys(new)
            shared += shared_passes(new)
            naive += naive_passes(new)
            largest = max(largest, len(new))
            contests += isinstance(masks, Contest) and len(masks) > masks.winners
            # Where removal goes on while the loss is right, equal losses show the longest run.
            flat = not config.fixed_count
            masks = run.send([Evaluation.of(m, [flat or noise.random()]) for m in masks])
    except StopIteration:
        pass
    return Forecast(
        len(seen),
        shared,
        naive,
        largest,
        tuple(signals.asked),
        at_most=not config.fixed_count,
        cut=cut,
        contests=contests,
    )
