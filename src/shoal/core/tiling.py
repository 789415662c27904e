"""Runs of sub-layers that do not overlap: counting, listing, drawing, and taking a set apart.

The sub-layers of a model stand in a row: attention 0, MLP 0, attention 1, ... A unit covers a run
of them, its span. Sets of units that do not overlap are counted by how many of them end at or
before each place, which also serves to draw one of all sets with equal chances.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from functools import lru_cache

import numpy as np

from shoal.core.mask import Site, sublayers

Span = tuple[int, int]
"""First place, and the place after the last."""

Starting = dict[int, list[tuple[int, int]]]
"""Place -> (place after the last, index) of the spans that start there, the widest first."""


def span_of(unit: Iterable[Site]) -> Span:
    """The run that a unit covers.

    Raises:
        ValueError: If its sub-layers are no run.
    """
    places = sorted(site.position for site in sublayers(unit))
    if not places or places[-1] - places[0] != len(places) - 1:
        raise ValueError(f"a unit is a run of neighbouring sub-layers, not {sorted(unit)}.")
    return places[0], places[-1] + 1


def by_start(spans: Sequence[Span]) -> Starting:
    """The spans by where they start."""
    found: Starting = {}
    for i, (start, stop) in enumerate(spans):
        found.setdefault(start, []).append((stop, i))
    return {start: sorted(ends, reverse=True) for start, ends in found.items()}


def tiled(places: Set[int], starting: Starting) -> tuple[int, ...] | None:
    """Cover some places exactly, from left to right, trying wide spans first.

    Returns:
        Ascending indices of the spans, or None where no choice of spans covers the places.
    """
    order = sorted(places)
    dead: set[int] = set()

    def cover(done: int) -> tuple[int, ...] | None:
        if done == len(order):
            return ()
        if done in dead:
            return None
        start = order[done]
        for stop, i in starting.get(start, ()):
            width = stop - start
            if order[done : done + width] == list(range(start, stop)):
                rest = cover(done + width)
                if rest is not None:
                    return (i, *rest)
        dead.add(done)
        return None

    found = cover(0)
    return None if found is None else tuple(sorted(found))


@lru_cache(maxsize=64)
def _table(spans: tuple[Span, ...], k: int) -> list[list[int]]:
    """Entry [place][j]: sets of j spans that do not overlap and end at or before the place."""
    length = max((stop for _, stop in spans), default=0)
    ending: dict[int, list[int]] = {}
    for start, stop in spans:
        ending.setdefault(stop, []).append(start)
    table = [[1] + [0] * k]
    for place in range(1, length + 1):
        row = list(table[-1])
        for start in ending.get(place, ()):
            for j in range(1, k + 1):
                row[j] += table[start][j - 1]
        table.append(row)
    return table


def count(spans: tuple[Span, ...], k: int) -> int:
    """Number of sets of `k` spans that do not overlap."""
    return _table(spans, k)[-1][k] if 0 <= k <= len(spans) else 0


def most(spans: tuple[Span, ...]) -> int:
    """Most spans that do not overlap."""
    row = _table(spans, len(spans))[-1]
    return max(j for j, sets in enumerate(row) if sets)


def disjoint(spans: Sequence[Span], k: int) -> Iterator[tuple[int, ...]]:
    """All sets of `k` spans that do not overlap, as ascending indices, in lexicographic order."""
    covers = [frozenset(range(*span)) for span in spans]

    def grow(chosen: tuple[int, ...], taken: frozenset[int]) -> Iterator[tuple[int, ...]]:
        missing = k - len(chosen)
        if missing == 0:
            yield chosen
            return
        for i in range(chosen[-1] + 1 if chosen else 0, len(spans) - missing + 1):
            if taken.isdisjoint(covers[i]):
                yield from grow((*chosen, i), taken | covers[i])

    return grow((), frozenset())


def drawn(spans: tuple[Span, ...], k: int, rng: np.random.Generator) -> list[int]:
    """Draw one of all sets of `k` spans that do not overlap, each with the same chance.

    Raises:
        ValueError: If there is none.
    """
    table = _table(spans, k)
    if table[-1][k] == 0:
        raise ValueError(f"no {k} of {len(spans)} spans are apart.")
    chosen: list[int] = []
    place = len(table) - 1
    while len(chosen) < k:
        wanted = k - len(chosen)
        # Either nothing ends here, or one of the spans that do is taken.
        ways: list[tuple[int, int]] = [(-1, table[place - 1][wanted])]
        ways += [
            (i, table[start][wanted - 1]) for i, (start, stop) in enumerate(spans) if stop == place
        ]
        total = sum(number for _, number in ways)
        chances = np.array([number / total for _, number in ways])
        picked = ways[int(rng.choice(len(ways), p=chances / chances.sum()))][0]
        if picked < 0:
            place -= 1
        else:
            chosen.append(picked)
            place = spans[picked][0]
    return chosen[::-1]
