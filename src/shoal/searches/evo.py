"""EvoPress: a (1 + lambda) evolution of one set by level switches.

EvoPress (Sieberling et al. 2024, 2410.14649). The best of some random sets is the first parent. In
each generation the parent has `offspring` mutants: min(U, U') of its removed units change places
with as many kept ones, U and U' uniform on 1 to `max_swaps`, all drawn without replacement. The
parent takes part in the selection, so its loss never rises: the best mutant takes its place if it
is not worse. A mutant as good as its parent thus moves on, which crosses plateaus. The default
number of generations is k (N - k) / 1.5, rounded up; defaults are those of the original.

Departures:

- The original judges a generation in stages, on more and more tokens for fewer and fewer mutants,
  the parent joining the last. Each generation here is a contest with one winner, which racing may
  decide on part of the data in the same manner.
- The original draws new data for each generation, so it judges a set anew each time. Here a loss
  is a fixed number: a mutant that is known is drawn again, as it can be no better than its parent.
- The search ends before its last generation when every set of k units is known, or when mutation
  finds no new one.

Cost: at most initial + generations offspring evaluations; 64 + 117 * 32 = 3808 for 7 of 32 blocks
with the defaults.

Under a weight, and where units overlap, the removed units of a swap are put back and units drawn at
random fill up to the budget in turn, those in vain put back again: a swap may exchange a number of
units for another. The default number of generations follows from the units of the first parent.
"""

from functools import partial
from math import ceil

import numpy as np

from shoal.config.searches import EvoConfig
from shoal.core.budget import Budget, CountBudget
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.searches.base import Contest, Problem, SearchRun, best_of
from shoal.searches.draws import fresh
from shoal.searches.ranking import filled

PATIENCE = 1000
"""Mutants drawn in vain before a generation closes without all of its offspring."""


def evo(problem: Problem, config: EvoConfig) -> SearchRun:
    """Improve one set by swaps, the best mutant of each generation taking its place."""
    space, budget, rng = problem.space, problem.budget, problem.rng
    initial = min(config.initial, budget.size(space, config.initial))
    pool = fresh(partial(budget.sample, space, rng), initial)
    parent = best_of((yield Contest(pool, winners=1)))
    known = set(pool)
    for _ in range(_generations(space, parent.mask, config)):
        wanted = config.offspring
        wanted = min(wanted, budget.size(space, len(known) + wanted) - len(known))
        draw = partial(mutant, space, rng, parent.mask, config.max_swaps, budget)
        mutants = fresh(draw, wanted, known, PATIENCE)
        if not mutants:
            break
        known.update(mutants)
        best = best_of((yield Contest(mutants, winners=1)))
        if best.rank_key <= parent.rank_key:
            parent = best
    return parent.mask


def _generations(space: SearchSpace, first: Mask, config: EvoConfig) -> int:
    if config.generations is not None:
        return config.generations
    k = len(space.removed_units(first))
    return ceil(k * (len(space.units) - k) / 1.5)


def mutant(
    space: SearchSpace,
    rng: np.random.Generator,
    parent: Mask,
    max_swaps: int,
    budget: Budget | None = None,
) -> Mask | None:
    """Draw a set that differs from its parent by a few swaps, or None where it is not valid.

    Args:
        space: The units, and which of them may go together.
        rng: Source of randomness.
        parent: The mask to start from.
        max_swaps: The number of swaps is the lesser of two uniform draws from 1 to this, as far
            as there are units to swap.
        budget: What the set must meet; as many units as the parent by default.
    """
    budget = budget or CountBudget(len(space.removed_units(parent)))
    if space.overlapping or not budget.uniform:
        return _refilled(space, rng, parent, max_swaps, budget)
    removed, kept = space.removed_units(parent), space.free_units(parent)
    swaps = min(*rng.integers(1, max_swaps, size=2, endpoint=True), len(removed), len(kept))
    out = rng.choice(len(removed), size=swaps, replace=False)
    into = rng.choice(len(kept), size=swaps, replace=False)
    mask = parent.restored(s for i in out for s in removed[i])
    mask = mask.without(s for i in into for s in kept[i])
    right = len(space.removed_units(mask)) == len(removed) and space.is_valid(mask)
    return mask if right else None


def _refilled(
    space: SearchSpace, rng: np.random.Generator, parent: Mask, max_swaps: int, budget: Budget
) -> Mask | None:
    """A mutant where units differ in price or overlap: some go back, others fill up in turn."""
    removed = space.removed_units(parent)
    swaps = min(*rng.integers(1, max_swaps, size=2, endpoint=True), len(removed))
    out = [removed[i] for i in rng.choice(len(removed), size=swaps, replace=False)]
    mask = parent.restored(site for unit in out for site in unit)
    order = [i for i in rng.permutation(len(space.units)).tolist() if space.units[i] not in out]
    return filled(space, mask, order, budget)
