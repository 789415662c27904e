"""Random search: the best of some masks drawn uniformly; the baseline that others must beat.

Cost: `samples` evaluations, fewer where draws repeat.
"""

from shoal.config.searches import RandomConfig
from shoal.core.mask import Mask
from shoal.searches.base import Problem, SearchRun, batches, best_of


def random_search(problem: Problem, config: RandomConfig) -> SearchRun:
    """Draw distinct masks and return the best."""
    wanted = min(config.samples, problem.space.size(problem.k))
    drawn: dict[Mask, None] = {}
    # Where nearly all masks are wanted, the last ones are hard to hit; 20 draws each will do.
    for _ in range(20 * wanted):
        if len(drawn) == wanted:
            break
        drawn.setdefault(problem.space.sample(problem.rng, problem.k))
    leaders = []
    for masks in batches(drawn, config.batch):
        leaders.append(best_of((yield masks)))
    return best_of(leaders).mask
