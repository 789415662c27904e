"""Greedy deletion: k rounds, each removes the unit whose removal costs least given the rest.

SLEB (Song et al. 2024, 2402.09025), without its protection of the first and last block: protect
them explicitly where you want that. Ties go to the unit that comes first.
Where units overlap, one after which the others are too few is left out.

Cost: N k - k (k - 1) / 2 evaluations for N removable units.

Under a weight each round removes the unit whose removal costs least per price, as far as the price
still counts towards the target; that keeps a heavy unit from being taken for a small rest. Units
that are in vain at the end are put back, the one that helps most first. Each round has looked at
masks that meet the target too, so the result is the best answer of all that were seen. The cost is
the same with k for the rounds that it takes, and at most one evaluation per unit and unit put back.
As the lowest loss does not decide a round, rounds are not raced.
"""

from shoal.config.searches import GreedyConfig
from shoal.core.errors import UsageError
from shoal.core.mask import Mask
from shoal.searches.base import Contest, Problem, SearchRun, best_of
from shoal.searches.memory import Asking, Memory
from shoal.searches.ranking import ranked_extensions


def greedy(problem: Problem, config: GreedyConfig) -> SearchRun:
    """Remove one unit at a time, the least harmful first."""
    if not problem.budget.uniform:
        memory = Memory(problem)
        yield from _to_a_weight(problem, memory)
        return memory.best
    mask = problem.space.dense
    for removed in range(problem.k):
        candidates = problem.extensions(mask)
        if not candidates:
            raise UsageError(
                f"nothing can be removed after {removed} of {problem.k} units; remove fewer."
            )
        mask = best_of((yield Contest(candidates, winners=1))).mask
    return mask


def _to_a_weight(problem: Problem, memory: Memory) -> Asking:
    """Remove the unit of the least increase per price until the target is met."""
    space = problem.space
    yield from memory.ask([space.dense])
    base, mask = memory[space.dense].mean, space.dense
    while not problem.budget.is_met(space, mask):
        candidates: list[Mask] = problem.extensions(mask)
        if not candidates:
            return
        yield from memory.ask(candidates)
        grown = [memory[m] for m in candidates]
        mask = ranked_extensions(problem, memory[mask], grown, base)[0].mask
    yield from memory.spare(mask)
