"""From an order of units to a set of units that may go together."""

from collections.abc import Iterable, Sequence
from math import inf, isfinite

from shoal.core.mask import Mask
from shoal.core.space import SearchSpace


def top_k(space: SearchSpace, scores: Sequence[float], k: int) -> Mask | None:
    """The `k` units with the lowest scores that may go together, taken in the order of the scores.

    Ties go to the unit that comes first; a score that is not finite ranks last.

    Args:
        space: The units, and which of them may go together.
        scores: One score per unit of the space; the lowest is removed first.
        k: How many units to remove.

    Returns:
        The mask, or None if fewer than `k` units could be taken.
    """
    keys = [score if isfinite(score) else inf for score in scores]
    return filled(space, space.dense, sorted(range(len(space.units)), key=keys.__getitem__), k)


def filled(space: SearchSpace, mask: Mask, order: Iterable[int], k: int) -> Mask | None:
    """Remove units in a given order until `k` are removed.

    A unit is skipped if it is removed already, overlaps with one that is, or may not go with those.

    Args:
        space: The units, and which of them may go together.
        mask: What is removed to begin with, at most `k` units.
        order: Indices of units of the space.
        k: How many units the result removes.

    Returns:
        The mask, or None if the order ends before.
    """
    count = len(space.removed_units(mask))
    for i in order:
        if count == k:
            break
        if not space.is_free(i, mask):
            continue
        grown = mask.without(space.units[i])
        # Where units overlap, one may complete another; that would be two removals at once.
        if space.is_valid(grown) and len(space.removed_units(grown)) == count + 1:
            mask, count = grown, count + 1
    return mask if count == k else None
