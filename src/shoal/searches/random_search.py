"""Random search: the best of some masks drawn uniformly; the baseline that others must beat.

Cost: `samples` evaluations, fewer where draws repeat.

Under a weight a draw removes units in random order until the target is met, and puts back what is
in vain in random order; that is no uniform draw of the answers, which have different sizes.
"""

from shoal.config.searches import RandomConfig
from shoal.core.mask import Mask
from shoal.searches.base import Problem, SearchRun, batches, best_of


def random_search(problem: Problem, config: RandomConfig) -> SearchRun:
    """Draw distinct masks and return the best."""
    space, budget = problem.space, problem.budget
    wanted = min(config.samples, budget.size(space, config.samples))
    drawn: dict[Mask, None] = {}
    # Where nearly all masks are wanted, the last ones are hard to hit; 20 draws each will do.
    for _ in range(20 * wanted):
        if len(drawn) == wanted:
            break
        drawn.setdefault(budget.sample(space, problem.rng))
    leaders = []
    for masks in batches(drawn, config.batch):
        leaders.append(best_of((yield masks)))
    return best_of(leaders).mask
