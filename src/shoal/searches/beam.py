"""Beam search: greedy deletion that keeps the best few sets of each depth instead of one.

Rethinking Layer Redundancy (2604.24938), with its width of 5. At every depth each kept set is
extended by each unit that it leaves in place; sets that were reached on several ways count once,
and the `width` best of all go on. The last depth keeps one. A width of 1 is greedy deletion, and
a width that no depth exceeds is brute force.

The paper names the method and the width only. Added here: ties go to the set whose parent ranks
first, then to the unit that comes first, which is greedy's rule at width 1.

Cost: at most N + width ((k - 1) N - k (k - 1) / 2) evaluations for N removable units (887 for 7 of
32 at width 5), fewer by the sets that several kept sets lead to.

Under a weight, sets of one depth lack different parts of the target, and count as

    loss + slope * what is missing

where the slope is the least increase per price among the extensions of the leading set, as greedy
ranks them; it is 0 where removing one more unit lowers the loss. Of the `width` best, those that
meet the target are finished: what they remove in vain is put back, the unit that helps most first.
The others go on, and the best answer of all that were seen is the result. The cost is that of as
many depths as it takes, and at most N evaluations per finished set and unit put back. As the
lowest loss does not decide, depths are not raced.
"""

from math import isfinite

from shoal.config.searches import BeamConfig
from shoal.core.errors import UsageError
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask
from shoal.searches.base import Contest, Problem, SearchRun
from shoal.searches.memory import Asking, Memory
from shoal.searches.ranking import per_price, ranked_extensions


def beam(problem: Problem, config: BeamConfig) -> SearchRun:
    """Extend the best sets of each depth by one unit."""
    if not problem.budget.uniform:
        memory = Memory(problem)
        yield from _to_a_weight(problem, memory, config.width)
        return memory.best
    space = problem.space
    kept = [space.dense]
    for removed in range(problem.k):
        candidates = dict.fromkeys(grown for mask in kept for grown in problem.extensions(mask))
        if not candidates:
            raise UsageError(
                f"nothing can be removed after {removed} of {problem.k} units; remove fewer."
            )
        winners = config.width if removed + 1 < problem.k else 1
        evaluations = yield Contest(candidates, winners=winners)
        ranked = sorted(evaluations, key=lambda e: e.rank_key)
        kept = [e.mask for e in ranked[:winners]]
    return kept[0]


def _to_a_weight(problem: Problem, memory: Memory, width: int) -> Asking:
    """Extend the sets that promise most until all of them meet the target."""
    space, budget = problem.space, problem.budget
    yield from memory.ask([space.dense])
    kept, finished = [space.dense], list[Mask]()
    while kept:
        ways = {mask: problem.extensions(mask) for mask in kept}
        candidates = list(dict.fromkeys(grown for grows in ways.values() for grown in grows))
        yield from memory.ask(candidates)
        leader = next((mask for mask in kept if ways[mask]), None)
        if leader is None:
            break
        slope = _slope(problem, memory, leader, ways[leader])

        def promise(mask: Mask, slope: float = slope) -> tuple[float, ...]:
            missing, loss = max(budget.missing(space, mask), 0.0), memory[mask].rank_key
            return loss + slope * missing, missing, loss

        best = sorted(candidates, key=promise)[:width]
        finished += [mask for mask in best if budget.is_met(space, mask)]
        kept = [mask for mask in best if not budget.is_met(space, mask)]
    for mask in finished:
        yield from memory.spare(mask)


def _slope(problem: Problem, memory: Memory, leader: Mask, grows: list[Mask]) -> float:
    """The least increase per price among the extensions of a set, if the loss rises at all."""
    base = memory[problem.space.dense].mean
    evaluations: list[Evaluation] = [memory[m] for m in grows]
    best = ranked_extensions(problem, memory[leader], evaluations, base)[0]
    before = problem.budget.missing(problem.space, leader)
    after = max(problem.budget.missing(problem.space, best.mask), 0.0)
    loss = memory[leader].mean if memory[leader].finite else base
    slope = per_price(best.rank_key - loss, before - after)
    return slope if isfinite(slope) and slope > 0 else 0.0
