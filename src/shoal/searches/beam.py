"""Beam search: greedy deletion that keeps the best few sets of each depth instead of one.

Rethinking Layer Redundancy (2604.24938), with its width of 5. At every depth each kept set is
extended by each unit that it leaves in place; sets that were reached on several ways count once,
and the `width` best of all go on. The last depth keeps one. A width of 1 is greedy deletion, and
a width that no depth exceeds is brute force.

The paper names the method and the width only. Added here: ties go to the set whose parent ranks
first, then to the unit that comes first, which is greedy's rule at width 1.

Cost: at most N + width ((k - 1) N - k (k - 1) / 2) evaluations for N removable units (887 for 7 of
32 at width 5), fewer by the sets that several kept sets lead to.
"""

from shoal.config.searches import BeamConfig
from shoal.core.errors import UsageError
from shoal.searches.base import Contest, Problem, SearchRun


def beam(problem: Problem, config: BeamConfig) -> SearchRun:
    """Extend the best sets of each depth by one unit."""
    space = problem.space
    kept = [space.dense]
    for removed in range(problem.k):
        candidates = dict.fromkeys(grown for mask in kept for grown in space.extensions(mask))
        if not candidates:
            raise UsageError(
                f"nothing can be removed after {removed} of {problem.k} units; remove fewer."
            )
        winners = config.width if removed + 1 < problem.k else 1
        evaluations = yield Contest(candidates, winners=winners)
        ranked = sorted(evaluations, key=lambda e: e.rank_key)
        kept = [e.mask for e in ranked[:winners]]
    return kept[0]
