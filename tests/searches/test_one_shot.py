from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.config.searches import OneShotConfig
from shoal.core.errors import UsageError
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.testing.landscapes import Additive, Broken, Pairwise, optimum
from shoal.testing.searches import SearchConformance, solve


class TestOneShot(SearchConformance):
    @pytest.fixture
    def config(self) -> OneShotConfig:
        return OneShotConfig()


@given(st.integers(0, 999), st.integers(1, 6))
def test_exact_where_removals_add_up(seed: int, k: int) -> None:
    landscape = Additive.random(7, seed)
    found = solve(OneShotConfig(), landscape, k=k).outcome.best
    assert found.mean == optimum(landscape, SearchSpace.of_blocks(7), k).mean


@given(st.integers(0, 999), st.integers(1, 6), st.sets(st.integers(0, 6), max_size=2))
def test_removes_the_k_cheapest_singles(seed: int, k: int, broken: set[int]) -> None:
    landscape = Broken.at(Pairwise.random(7, seed), broken)
    solved = solve(OneShotConfig(), landscape, k=k)
    scores = solved.evaluator.evaluate([Mask.of(7, [i]) for i in range(7)])
    cheapest = sorted(range(7), key=lambda i: (scores[i].rank_key, i))[:k]
    assert solved.mask == Mask.of(7, cheapest)


@pytest.mark.parametrize(("k", "cost"), [(1, 8), (3, 9), (7, 9)])
def test_costs_n_evaluations_and_one_for_the_result(k: int, cost: int) -> None:
    assert solve(OneShotConfig(), Additive.random(8), k=k).outcome.evaluations == cost


def test_budgets_share_their_ranking() -> None:
    landscape = Pairwise.random(8, 4)
    found = [set(solve(OneShotConfig(), landscape, k=k).mask.blocks) for k in range(1, 8)]
    assert all(small < large for small, large in pairwise(found))


def test_a_constraint_that_leaves_too_few_is_reported() -> None:
    space = SearchSpace.of_blocks(6, constraint=lambda m: len(m) < 3)
    with pytest.raises(UsageError, match="only 2 of 4 units can be removed together"):
        solve(OneShotConfig(), Additive.random(6), k=4, space=space)
