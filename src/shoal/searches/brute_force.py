"""Brute force: every mask of k units; the exact optimum, for small problems and as an oracle.

Cost: C(N, k) evaluations for N removable units; refused above `max_masks`.

Under a weight: every set that meets the target and of which no unit is in vain, whatever its size,
found depth first. They are counted before any is evaluated.
"""

from shoal.config.searches import BruteForceConfig
from shoal.core.errors import BudgetError
from shoal.searches.base import Problem, SearchRun, batches, best_of


def brute_force(problem: Problem, config: BruteForceConfig) -> SearchRun:
    """Evaluate all masks and return the best."""
    space, budget = problem.space, problem.budget
    count = budget.size(space, config.max_masks)
    if count > config.max_masks:
        amount = f"{count} masks" if budget.uniform else f"at least {count} masks"
        raise BudgetError(
            f"brute force would evaluate {amount}, more than search.max_masks = "
            f"{config.max_masks}. Remove fewer, protect more, raise the limit, or use greedy."
        )
    leaders = []
    for masks in batches(budget.masks(space), config.batch):
        leaders.append(best_of((yield masks)))
    if not leaders:
        raise BudgetError(f"no valid mask removes {budget} of this model.")
    return best_of(leaders).mask
