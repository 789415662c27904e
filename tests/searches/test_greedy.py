from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.config.searches import GreedyConfig
from shoal.core.errors import UsageError
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.testing.landscapes import Additive, Broken, Landscape, Pairwise, optimum
from shoal.testing.searches import SearchConformance, solve


class TestGreedy(SearchConformance):
    deterministic = True

    @pytest.fixture
    def config(self) -> GreedyConfig:
        return GreedyConfig()


def by_hand(landscape: Landscape, k: int, protect: set[int]) -> Mask:
    removed: list[int] = []
    for _ in range(k):
        best, best_loss = -1, float("inf")
        for block in range(landscape.depth):
            if block in removed or block in protect:
                continue
            mask = Mask.of(landscape.depth, [*removed, block])
            loss = Evaluation.of(mask, landscape.losses(mask)).rank_key
            if best < 0 or loss < best_loss:
                best, best_loss = block, loss
        removed.append(best)
    return Mask.of(landscape.depth, removed)


@given(
    st.integers(0, 999),
    st.integers(1, 4),
    st.sets(st.integers(0, 7), max_size=3),
    st.sets(st.integers(0, 7), max_size=2),
    st.booleans(),
)
def test_equals_the_loop_written_by_hand(
    seed: int, k: int, protect: set[int], broken: set[int], coarse: bool
) -> None:
    inner = Pairwise.random(8, seed, strength=0.001 if coarse else 1.0)
    landscape = Broken.at(inner, broken)
    space = SearchSpace.of_blocks(8, protect)
    assert solve(GreedyConfig(), landscape, k=k, space=space).mask == by_hand(landscape, k, protect)


@given(st.integers(0, 999), st.integers(1, 6))
def test_exact_where_removals_add_up(seed: int, k: int) -> None:
    landscape = Additive.random(7, seed)
    found = solve(GreedyConfig(), landscape, k=k).outcome.best
    assert found.mean == optimum(landscape, SearchSpace.of_blocks(7), k).mean


def test_sees_interactions_that_one_shot_ranking_does_not() -> None:
    # Blocks 0 and 1 are cheap alone and ruinous together.
    landscape = Pairwise(Additive(((0.0, 0.125, 0.5, 1.0),)), {(0, 1): 4.0})
    assert solve(GreedyConfig(), landscape, k=2).mask == Mask.of(4, [0, 2])


@pytest.mark.parametrize(("protect", "k"), [((), 1), ((), 4), ((0, 7), 3)])
def test_cost_is_the_stated_one(protect: tuple[int, ...], k: int) -> None:
    space = SearchSpace.of_blocks(8, protect)
    solved = solve(GreedyConfig(), Pairwise.random(8), k=k, space=space)
    n = 8 - len(protect)
    assert solved.outcome.evaluations == n * k - k * (k - 1) // 2


def test_budgets_are_nested() -> None:
    landscape = Pairwise.random(8, 4)
    found = [set(solve(GreedyConfig(), landscape, k=k).mask.blocks) for k in range(1, 8)]
    assert all(small < large for small, large in pairwise(found))


def test_a_dead_end_is_reported() -> None:
    space = SearchSpace.of_blocks(6, constraint=lambda m: len(m) < 3)
    with pytest.raises(UsageError, match="nothing can be removed after 2 of 4 units"):
        solve(GreedyConfig(), Additive.random(6), k=4, space=space)
