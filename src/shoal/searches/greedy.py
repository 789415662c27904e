"""Greedy deletion: k rounds, each removes the unit whose removal costs least given the rest.

SLEB (Song et al. 2024, 2402.09025), without its protection of the first and last block: protect
them explicitly where you want that. Ties go to the unit that comes first.

Cost: N k - k (k - 1) / 2 evaluations for N removable units.
"""

from shoal.config.searches import GreedyConfig
from shoal.core.errors import UsageError
from shoal.searches.base import Contest, Problem, SearchRun, best_of


def greedy(problem: Problem, config: GreedyConfig) -> SearchRun:
    """Remove one unit at a time, the least harmful first."""
    mask = problem.space.dense
    for removed in range(problem.k):
        candidates = problem.space.extensions(mask)
        if not candidates:
            raise UsageError(
                f"nothing can be removed after {removed} of {problem.k} units; remove fewer."
            )
        mask = best_of((yield Contest(candidates, winners=1))).mask
    return mask
