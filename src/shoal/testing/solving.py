"""Running a search on a landscape."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from shoal.config.searches import SearchConfig
from shoal.core.budget import Wanted
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.engine.driver import Limits, Outcome, drive
from shoal.testing.landscapes import Landscape, LandscapeEvaluator
from shoal.testing.signals import LandscapeSignals


@dataclass(frozen=True)
class Solved:
    """A search that ran to its end: what it found, and the evaluator that it asked."""

    outcome: Outcome
    evaluator: LandscapeEvaluator

    @property
    def mask(self) -> Mask:
        """The mask that the search returned."""
        return self.outcome.best.mask

    @property
    def asked(self) -> set[Mask]:
        """All masks that the search asked for, the dense one included."""
        return {mask for masks in self.evaluator.asked for mask in masks}


def solve(
    config: SearchConfig,
    landscape: Landscape,
    *,
    k: Wanted = 3,
    seed: int = 0,
    space: SearchSpace | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    **evaluator: Any,
) -> Solved:
    """Run a search on a landscape.

    Args:
        config: Which search.
        landscape: The losses.
        k: How many units to remove, or another budget.
        seed: Seed of the search.
        space: What may be removed; every block by default.
        limits: The budget.
        **evaluator: Arguments of `LandscapeEvaluator`.
    """
    answers = LandscapeEvaluator(landscape, **evaluator)
    space = space or SearchSpace.of_blocks(landscape.depth)
    signals = LandscapeSignals(landscape, space)
    outcome = drive(config, space, k, seed, answers, signals, limits=limits)
    return Solved(outcome, answers)


def no_neighbours(mask: Mask) -> bool:
    """A constraint for tests: two consecutive blocks never go together."""
    return all(after - before > 1 for before, after in pairwise(mask.blocks))
