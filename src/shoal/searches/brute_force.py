"""Brute force: every mask of k units; the exact optimum, for small problems and as an oracle.

Cost: C(N, k) evaluations for N removable units; refused above `max_masks`.
"""

from shoal.config.searches import BruteForceConfig
from shoal.core.errors import BudgetError
from shoal.searches.base import Problem, SearchRun, batches, best_of


def brute_force(problem: Problem, config: BruteForceConfig) -> SearchRun:
    """Evaluate all masks and return the best."""
    count = problem.space.size(problem.k)
    if count > config.max_masks:
        raise BudgetError(
            f"brute force would evaluate {count} masks, more than search.max_masks = "
            f"{config.max_masks}. Remove fewer, protect more, raise the limit, or use greedy."
        )
    leaders = []
    for masks in batches(problem.space.masks(problem.k), config.batch):
        leaders.append(best_of((yield masks)))
    if not leaders:
        raise BudgetError(f"no valid mask removes {problem.k} units of this model.")
    return best_of(leaders).mask
