"""TALE: greedy removal for as long as the loss stays within epsilon; the count follows from it.

    path = [dense]
    while fewer than k units are removed:
        best = argmin over the units i left of L(path[-1] + i)
        floor = L(dense)                # `fixed`, as in the released code
              | L(path[-1])             # `drifting`, as in the published pseudo-code
        stop if L(best) > floor + epsilon
        append best to path
    BEST = the least loss on the path, the fewest removals of equals
    BSBA = the deepest on the path with L <= L(dense)

TALE (2510.22767) with losses for accuracies: with 1 - accuracy as the loss, epsilon is accuracy
that may be lost. No block is protected, neither first nor last. Ties go to the unit that comes
first. Equality is within the floor; since losses are rounded means, so is what exceeds it by
1e-12 of its terms. A loss that is not finite is never accepted.

Ours: k caps the removals; BEST may be the dense model, of which the path consists when the first
round already fails; the last accepted mask is offered as well; where the budget ends, the path
until then is what counts.

Cost: for N removable units and r removals r N - r (r - 1) / 2 evaluations where k or the space
ends it, and N - r more where the floor does: the round that fails is paid in full.

Under a weight the target is the most that is removed: units that would exceed it are left out, and
the search ends where none fits. Of the removals within the floor, that of the least increase per
price is accepted, so a round ends the search only if all its removals miss the floor. Rounds are
not raced. The cost is the same at most.
"""

from collections.abc import Generator, Sequence
from math import isfinite

from shoal.config.searches import TaleConfig
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask
from shoal.searches.base import Contest, Found, OutOfBudget, Problem, SearchRun, best_of
from shoal.searches.ranking import ranked_extensions

ROUNDING = 1e-12
"""Share of the floor's terms by which a loss may exceed it."""


def tale(problem: Problem, config: TaleConfig) -> SearchRun:
    """Remove one unit at a time within epsilon; return the mask that `config.result` names."""
    path: list[Evaluation] = []
    try:
        reason = yield from _descend(problem, config, path)
    except OutOfBudget:
        reason = "budget"
    dense = problem.space.dense
    picks = {"best": dense, "bsba": dense, "last": dense}
    if path:
        harmless = [e for e in path if within(e, path[0].mean, 0.0)]
        picks = {
            "best": best_of(path).mask,
            "bsba": harmless[-1].mask,
            "last": path[-1].mask,
        }
    floor = _floor(config, path) + config.epsilon if path else None
    details = {
        "path": [{"mask": str(e.mask), "loss": e.mean} for e in path],
        **{name: str(mask) for name, mask in picks.items()},
        "loss_limit": floor if floor is not None and isfinite(floor) else None,
        "stopped_because": reason,
    }
    return Found(picks[config.result], details)


def within(evaluation: Evaluation, floor: float, epsilon: float) -> bool:
    """Whether a loss is finite and at most `floor + epsilon`, up to rounding."""
    rounding = ROUNDING * max(abs(floor), epsilon)
    loss = evaluation.rank_key
    return isfinite(loss) and loss <= floor + epsilon + rounding


def _descend(
    problem: Problem, config: TaleConfig, path: list[Evaluation]
) -> Generator[Sequence[Mask], Sequence[Evaluation], str]:
    """Extend the path until something ends it; returns what did."""
    space, budget = problem.space, problem.budget
    path.extend((yield [space.dense]))
    while not budget.is_met(space, path[-1].mask):
        candidates = space.extensions(path[-1].mask)
        if not candidates:
            return "nothing left to remove"
        fitting = [mask for mask in candidates if budget.within(space, mask)]
        if not fitting:
            return "cap"
        floor = _floor(config, path)
        if budget.uniform:
            ranked = [best_of((yield Contest(fitting, winners=1)))]
        else:
            ranked = ranked_extensions(problem, path[-1], (yield fitting), path[0].mean)
        accepted = [e for e in ranked if within(e, floor, config.epsilon)]
        if not accepted:
            return "floor"
        path.append(accepted[0])
    return "cap"


def _floor(config: TaleConfig, path: Sequence[Evaluation]) -> float:
    return path[0 if config.floor == "fixed" else -1].mean
