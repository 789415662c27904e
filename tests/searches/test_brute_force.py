import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.config.searches import BruteForceConfig
from shoal.core.errors import BudgetError
from shoal.core.space import SearchSpace
from shoal.testing.landscapes import Additive, Broken, Pairwise, optimum
from shoal.testing.searches import SearchConformance, no_neighbours, solve


class TestBruteForce(SearchConformance):
    deterministic = True
    unit_optimum = True
    pairwise_optimum = True

    @pytest.fixture
    def config(self) -> BruteForceConfig:
        return BruteForceConfig(batch=10)


@given(
    st.integers(0, 999),
    st.integers(1, 5),
    st.integers(1, 30),
    st.sets(st.integers(0, 5), max_size=2),
    st.booleans(),
)
def test_finds_the_first_best_of_all_masks(
    seed: int, k: int, batch: int, broken: set[int], tied: bool
) -> None:
    inner = Additive.flat(6) if tied else Pairwise.random(6, seed)
    landscape = Broken.at(inner, broken)
    found = solve(BruteForceConfig(batch=batch), landscape, k=k)
    assert found.mask == optimum(landscape, SearchSpace.of_blocks(6), k).mask


@pytest.mark.parametrize("constrained", [False, True])
def test_asks_for_every_valid_mask_once_in_batches(constrained: bool) -> None:
    space = SearchSpace.of_blocks(7, [0], no_neighbours if constrained else None)
    solved = solve(BruteForceConfig(batch=4), Pairwise.random(7), k=2, space=space)
    searched = solved.evaluator.asked[1:-1]
    assert [m for masks in searched for m in masks] == list(space.masks(2))
    assert {len(masks) for masks in searched[:-1]} == {4}


def test_refuses_more_masks_than_allowed() -> None:
    landscape = Additive.random(8)
    assert solve(BruteForceConfig(max_masks=56), landscape, k=3).outcome.evaluations == 56
    with pytest.raises(BudgetError, match=r"56 masks, more than search.max_masks = 55"):
        solve(BruteForceConfig(max_masks=55), landscape, k=3)


def test_no_valid_mask_is_reported() -> None:
    space = SearchSpace.of_blocks(4, constraint=no_neighbours)
    with pytest.raises(BudgetError, match="no valid mask removes 3 units"):
        solve(BruteForceConfig(), Additive.random(4), k=3, space=space)
