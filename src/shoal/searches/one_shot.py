"""One-shot top-k: score every unit alone, remove the k whose removal costs least.

Idea: treats removals as independent, which is cheap and blind to their interactions. The same
ranking serves every k. Ties go to the unit that comes first.

Cost: N evaluations for N removable units, and one for the result.
"""

from shoal.config.searches import OneShotConfig
from shoal.core.errors import UsageError
from shoal.searches.base import Problem, SearchRun


def one_shot(problem: Problem, config: OneShotConfig) -> SearchRun:
    """Remove the k units with the least single-removal loss."""
    space = problem.space
    singles = [space.dense.without(unit) for unit in space.units]
    scores = yield singles
    order = sorted(range(len(singles)), key=lambda i: scores[i].rank_key)
    mask = space.dense
    for i in order:
        if len(space.removed_units(mask)) == problem.k:
            break
        grown = mask.without(space.units[i])
        if not space.units[i] & mask.removed and space.is_valid(grown):
            mask = grown
    if len(space.removed_units(mask)) < problem.k:
        raise UsageError(
            f"only {len(space.removed_units(mask))} of {problem.k} units can be removed together "
            "in the order of their single losses; try another search or remove fewer."
        )
    yield [mask]
    return mask
