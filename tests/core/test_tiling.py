from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core import tiling
from shoal.core.mask import Part, Site


@st.composite
def spans(draw: st.DrawFn) -> tuple[tiling.Span, ...]:
    found = draw(st.lists(st.tuples(st.integers(0, 8), st.integers(1, 3)), max_size=7, unique=True))
    return tuple(sorted((start, start + width) for start, width in found))


def apart(chosen: tuple[tiling.Span, ...]) -> bool:
    places = [p for span in chosen for p in range(*span)]
    return len(set(places)) == len(places)


def brute(spans: tuple[tiling.Span, ...], k: int) -> list[tuple[int, ...]]:
    sets = combinations(range(len(spans)), k)
    return [s for s in sets if apart(tuple(spans[i] for i in s))]


@given(spans(), st.integers(0, 5))
def test_sets_are_listed_and_counted(spans: tuple[tiling.Span, ...], k: int) -> None:
    expected = brute(spans, k)
    assert list(tiling.disjoint(spans, k)) == expected
    assert tiling.count(spans, k) == len(expected)
    assert tiling.most(spans) == max(j for j in range(len(spans) + 1) if brute(spans, j))


@given(spans(), st.integers(1, 4), st.integers(0, 9))
def test_drawn_sets_are_apart(spans: tuple[tiling.Span, ...], k: int, seed: int) -> None:
    if tiling.count(spans, k):
        drawn = tiling.drawn(spans, k, np.random.default_rng(seed))
        assert tuple(drawn) in [tuple(sorted(s, key=lambda i: spans[i])) for s in brute(spans, k)]
    else:
        with pytest.raises(ValueError, match="are apart"):
            tiling.drawn(spans, k, np.random.default_rng(seed))


def test_every_set_is_drawn_with_the_same_chance() -> None:
    dominoes = tuple((i, i + 2) for i in range(7))
    rng = np.random.default_rng(0)
    drawn = [tuple(tiling.drawn(dominoes, 2, rng)) for _ in range(3000)]
    sets = brute(dominoes, 2)
    counts = np.array([drawn.count(s) for s in sets])
    assert counts.sum() == 3000
    expected = 3000 / len(sets)
    assert (abs(counts - expected) < 5 * expected**0.5).all()


@given(spans(), st.sets(st.integers(0, 10)))
def test_places_are_covered_exactly_or_not_at_all(
    spans: tuple[tiling.Span, ...], places: set[int]
) -> None:
    found = tiling.tiled(places, tiling.by_start(spans))
    covers = [
        s
        for k in range(len(spans) + 1)
        for s in brute(spans, k)
        if {p for i in s for p in range(*spans[i])} == places
    ]
    assert (found is None) == (not covers)
    if found is not None:
        assert found in covers


@given(st.integers(1, 12), st.data())
def test_dominoes_cover_a_set_in_one_way_only(length: int, data: st.DataObject) -> None:
    dominoes = tuple((i, i + 2) for i in range(length))
    chosen = data.draw(st.sampled_from([s for k in range(4) for s in brute(dominoes, k)]))
    places = {p for i in chosen for p in range(*dominoes[i])}
    assert tiling.tiled(places, tiling.by_start(dominoes)) == chosen


def test_spans_of_units() -> None:
    assert tiling.span_of([Site(3)]) == (6, 8)
    assert tiling.span_of([Site(3, Part.MLP), Site(4, Part.ATTN)]) == (7, 9)
    assert tiling.span_of([Site(3, Part.ATTN)]) == (6, 7)
    with pytest.raises(ValueError, match="neighbouring"):
        tiling.span_of([Site(3, Part.ATTN), Site(4, Part.ATTN)])
