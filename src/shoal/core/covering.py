"""Sets of spans that do not overlap and weigh at least a target: how heavy, and which.

The companion of `shoal.core.tiling`, which counts spans, for spans of different weights.
"""

from collections.abc import Callable, Iterator, Sequence, Set
from math import inf

from shoal.core.tiling import Span, by_start


def heaviest(
    spans: Sequence[Span], weights: Sequence[float], places: int, taken: Set[int] = frozenset()
) -> float:
    """The most that spans apart from each other weigh while some place is left.

    Args:
        spans: Candidates.
        weights: One per span.
        places: Length of the row.
        taken: Places that are covered already, which no span may touch.

    Returns:
        The weight, without that of what is taken; -inf where nothing can be left.
    """
    starting = by_start(spans)
    # From each place on: the most at all, and the most that leaves a place.
    most, leaving = [0.0] * (places + 1), [-inf] * (places + 1)
    for place in reversed(range(places)):
        if place in taken:
            most[place], leaving[place] = most[place + 1], leaving[place + 1]
            continue
        most[place] = leaving[place] = most[place + 1]
        for stop, i in starting.get(place, ()):
            if taken.isdisjoint(range(place, stop)):
                most[place] = max(most[place], weights[i] + most[stop])
                leaving[place] = max(leaving[place], weights[i] + leaving[stop])
    return leaving[0]


def covers(
    spans: Sequence[Span],
    weights: Sequence[float],
    target: float,
    goes_on: Callable[[tuple[int, ...]], bool],
) -> Iterator[tuple[int, ...]]:
    """All sets of spans apart from each other that reach a target with their last member.

    Args:
        spans: Candidates.
        weights: One non-negative weight per span.
        target: The least weight of a set.
        goes_on: Whether a set that reached the target may be extended all the same.

    Yields:
        Ascending indices, in lexicographic order. A set may have a member that it could do
        without, though never the last.
    """
    reach = _reach(spans, weights)

    def grow(
        chosen: tuple[int, ...], taken: frozenset[int], weight: float
    ) -> Iterator[tuple[int, ...]]:
        for i in range(chosen[-1] + 1 if chosen else 0, len(spans)):
            if weight + reach[i] < target:
                return
            covered = range(*spans[i])
            if not taken.isdisjoint(covered):
                continue
            grown, total = (*chosen, i), weight + weights[i]
            if total >= target:
                yield grown
            if total < target or goes_on(grown):
                yield from grow(grown, taken.union(covered), total)

    return grow((), frozenset(), 0.0)


def _reach(spans: Sequence[Span], weights: Sequence[float]) -> list[float]:
    """For each index a bound of what the spans from it on weigh: their places, each at its most."""
    dearest: dict[int, float] = {}
    reach = [0.0] * (len(spans) + 1)
    for i in reversed(range(len(spans))):
        start, stop = spans[i]
        for place in range(start, stop):
            dearest[place] = max(dearest.get(place, 0.0), weights[i] / (stop - start))
        reach[i] = sum(dearest.values())
    return reach
