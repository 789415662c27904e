import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.config.searches import RandomConfig
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.testing.landscapes import Pairwise, optimum
from shoal.testing.searches import SearchConformance, solve


class TestRandomWithRoomForAllMasks(SearchConformance):
    pairwise_optimum = True
    first_of_ties = False

    @pytest.fixture
    def config(self) -> RandomConfig:
        return RandomConfig(samples=70, batch=9)


class TestRandom(SearchConformance):
    separable_optimum = False
    first_of_ties = False

    @pytest.fixture
    def config(self) -> RandomConfig:
        return RandomConfig(samples=30, batch=9)


def drawn(samples: int, batch: int, seed: int, k: int = 3) -> list[list[Mask]]:
    config = RandomConfig(samples=samples, batch=batch)
    return solve(config, Pairwise.random(8), seed=seed, k=k).evaluator.asked[1:-1]


@given(st.integers(1, 80), st.integers(1, 20), st.integers(0, 999), st.integers(1, 7))
def test_draws_distinct_masks_as_many_as_wanted(
    samples: int, batch: int, seed: int, k: int
) -> None:
    batches = drawn(samples, batch, seed, k)
    masks = [m for one in batches for m in one]
    assert len(masks) == len(set(masks)) == min(samples, SearchSpace.of_blocks(8).size(k))
    assert {m.num_blocks for m in masks} == {k}
    assert all(len(one) == batch for one in batches[:-1])


def test_batches_do_not_change_the_masks_and_seeds_do() -> None:
    flat = [[m for one in drawn(20, batch, 0) for m in one] for batch in (1, 7, 20)]
    assert flat[0] == flat[1] == flat[2]
    assert drawn(20, 20, 1) != drawn(20, 20, 0)


def test_more_samples_continue_fewer() -> None:
    assert drawn(20, 64, 0)[0] == drawn(10, 64, 0)[0] + drawn(20, 64, 0)[0][10:]


@given(st.integers(0, 999))
def test_returns_the_best_of_what_it_drew(seed: int) -> None:
    landscape = Pairwise.random(8, seed)
    solved = solve(RandomConfig(samples=15), landscape, seed=seed)
    losses = [e.mean for e in solved.evaluator.evaluate(solved.evaluator.asked[1])]
    assert solved.outcome.best.mean == min(losses)
    assert solved.outcome.best.mean >= optimum(landscape, SearchSpace.of_blocks(8), 3).mean
