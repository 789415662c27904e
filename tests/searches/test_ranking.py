from math import inf, isfinite, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.mask import Mask, Site
from shoal.core.space import SearchSpace
from shoal.searches.ranking import filled, top_k
from shoal.testing.searches import no_neighbours

SCORE = st.integers(-3, 3).map(float) | st.sampled_from([nan, inf, -inf])


def windows(*units: tuple[int, ...], depth: int = 6) -> SearchSpace:
    return SearchSpace(depth, tuple(frozenset(Site(i) for i in unit) for unit in units))


@given(st.lists(SCORE, min_size=7, max_size=7), st.integers(1, 6))
def test_takes_the_lowest_scores_the_first_of_ties_and_numbers_before_others(
    scores: list[float], k: int
) -> None:
    def rank(i: int) -> tuple[bool, float, int]:
        return (not isfinite(scores[i]), scores[i] if isfinite(scores[i]) else 0.0, i)

    best = sorted(range(7), key=rank)[:k]
    assert top_k(SearchSpace.of_blocks(7), scores, k) == Mask.of(7, best)


def test_scores_are_those_of_the_units_of_the_space() -> None:
    space = SearchSpace.of_blocks(6, protect=(0, 3))
    assert top_k(space, [3.0, 1.0, 0.0, 2.0], 2) == Mask.of(6, [2, 4])


def test_units_that_the_constraint_forbids_are_skipped() -> None:
    space = SearchSpace.of_blocks(6, constraint=no_neighbours)
    assert top_k(space, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], 3) == Mask.of(6, [0, 2, 4])


def test_units_that_overlap_are_skipped() -> None:
    space = windows((0, 1), (1, 2), (2, 3), (4, 5))
    assert top_k(space, [1.0, 0.0, 2.0, 3.0], 2) == Mask.of(6, [1, 2, 4, 5])


def test_a_unit_that_would_complete_another_is_skipped() -> None:
    space = windows((0,), (1,), (0, 1), (3,))
    assert top_k(space, [0.0, 1.0, 2.0, 3.0], 2) == Mask.of(6, [0, 3])


@pytest.mark.parametrize(("order", "blocks"), [([1, 0, 2, 3], None), ([0, 1, 2, 3], (0, 2))])
def test_none_where_the_order_leads_nowhere(
    order: list[int], blocks: tuple[int, ...] | None
) -> None:
    # Of 0 to 3 without neighbours, 1 leaves room for 3 only, which is invalid for another reason.
    space = SearchSpace.of_blocks(4, constraint=lambda m: no_neighbours(m) and 3 not in m.blocks)
    mask = filled(space, space.dense, order, 2)
    assert mask == (None if blocks is None else Mask.of(4, blocks))


def test_filling_up_keeps_what_is_removed_and_stops_at_k() -> None:
    space = SearchSpace.of_blocks(6)
    assert filled(space, Mask.of(6, [2, 4]), [4, 2, 5, 0], 3) == Mask.of(6, [2, 4, 5])
    assert filled(space, Mask.of(6, [2, 4]), [0, 1], 2) == Mask.of(6, [2, 4])
    assert filled(space, Mask.of(6, [2, 4]), [2, 4, 0], 4) is None
