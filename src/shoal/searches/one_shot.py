"""One-shot top-k: score every unit of the dense model alone, remove the k that are needed least.

    s_i = L({i})                        # or a state score of unit i: no mask is evaluated
    remove the k units with the least s

Idea: treats removals as independent, which is cheap and blind to their interactions. The same
ranking serves every k. With `block_influence` it is ShortGPT (Men et al. 2024, 2403.03853); the
magnitude and Taylor scores are those of Shortened LLaMA (Kim et al. 2024, 2402.02834), which
protects the first four and the last two blocks: protect them explicitly where you want that.

With `angular` it is Gromov et al. (2024, 2403.17887), who do not take units one by one but the
k consecutive blocks over which the hidden state turns least:

    l* = argmin_l d(h_l, h_{l+k})       # over the windows that may be removed
    remove the blocks l* to l* + k - 1

Ties go to the unit, or window, that comes first; a score that is not finite ranks last.

Cost: N evaluations for N removable units, and one for the result; with a state score only the
latter, so that the plan can state its loss.

Under a weight units are taken in the order of their score per price (what a unit adds to the dense
loss, or its state score) until the target is met, and those in vain are put back, the last one
first; the cost is the same. Where removals do not interact and none helps, the result exceeds the
least loss by no more than the cost of one unit. Windows have k blocks, so `angular` needs a count.
"""

from collections.abc import Generator, Sequence
from math import inf, isfinite

from shoal.config.searches import OneShotConfig
from shoal.core.errors import UsageError
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask
from shoal.searches.base import Problem, SearchRun
from shoal.searches.memory import Memory
from shoal.searches.ranking import top_k
from shoal.searches.windows import mask_of, require_blocks, valid_windows


def one_shot(problem: Problem, config: OneShotConfig) -> SearchRun:
    """Remove the k units with the least scores, or the best window of k blocks (`angular`)."""
    space = problem.space
    if not problem.budget.uniform and config.rank != "angular":
        return (yield from _to_a_weight(problem, config))
    singles: list[Mask] = []
    if config.rank == "loss":
        singles = [space.dense.without(unit) for unit in space.units]
        evaluations = yield singles
        mask = least_units(problem, [e.rank_key for e in evaluations])
    elif config.rank == "angular":
        mask = least_window(problem, config.rank)
    else:
        mask = least_units(problem, problem.signals.units(config.rank))
    if mask not in singles:
        yield [mask]
    return mask


def _to_a_weight(
    problem: Problem, config: OneShotConfig
) -> Generator[Sequence[Mask], Sequence[Evaluation], Mask]:
    space, memory = problem.space, Memory(problem)
    if config.rank == "loss":
        singles = [space.dense.without(unit) for unit in space.units]
        yield from memory.ask([space.dense])
        yield from memory.ask(singles)
        scores = [memory[mask].rank_key for mask in singles]
        mask = least_units(problem, scores, memory[space.dense].mean)
    else:
        mask = least_units(problem, problem.signals.units(config.rank))
    yield from memory.ask([mask])
    return memory.best


def least_units(problem: Problem, scores: Sequence[float], base: float = 0.0) -> Mask:
    """The units with the lowest scores that meet the budget.

    Args:
        problem: What is searched.
        scores: One score per unit.
        base: The score of removing nothing; it matters under a weight.

    Raises:
        UsageError: If the constraints of the architecture leave too few in this order.
    """
    mask = top_k(problem.space, scores, problem.budget, base)
    if mask is None:
        raise UsageError(
            f"no {problem.budget} can be removed together in the order of their single scores; "
            "try another search or remove fewer."
        )
    return mask


def least_window(problem: Problem, name: str) -> Mask:
    """The k consecutive blocks with the lowest state score.

    Raises:
        UsageError: If no k consecutive blocks may be removed, units are not whole blocks,
            or the budget is no count.
    """
    space = problem.space
    require_blocks(space, f"one_shot by {name}", problem.budget)
    windows = valid_windows(space, problem.k)
    if not windows:
        raise UsageError(
            f"no {problem.k} consecutive blocks can be removed: each window holds a protected "
            "block or breaks a rule of the architecture. Protect fewer, remove fewer, or rank "
            "by another score, which need not remove neighbours."
        )
    scores = problem.signals.windows(name, problem.k)
    keys = [score if isfinite(score) else inf for score in scores]
    return mask_of(space, [min(windows, key=lambda w: keys[w.start])])
