from collections import Counter
from itertools import permutations
from math import exp, inf, nan, sqrt
from statistics import pstdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.errors import UsageError
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.searches.prior import drawn_set, prior_weights, shuffled
from shoal.testing.searches import no_neighbours


def single(i: int, loss: float, complete: bool = True) -> Evaluation:
    return Evaluation(Mask.of(50, [i]), (loss,), loss, nan, complete)


def singles(*losses: float) -> list[Evaluation]:
    return [single(i, loss) for i, loss in enumerate(losses)]


def test_is_the_stated_formula() -> None:
    losses = [2.0, 2.5, 3.0, 7.0]
    raw = [exp(-(x - 2.0) / pstdev(losses)) for x in losses]
    assert prior_weights(singles(*losses)) == pytest.approx([x / sum(raw) for x in raw])


@given(
    st.lists(st.integers(0, 50), min_size=2, max_size=40),
    st.sampled_from([1e-200, 0.001, 3.0, 1e200]),
    st.integers(-5, 5),
)
def test_depends_neither_on_the_scale_nor_on_the_level_of_the_losses(
    losses: list[int], scale: float, level: int
) -> None:
    changed = [scale * (x + level) for x in losses]
    assert prior_weights(singles(*changed)) == pytest.approx(
        prior_weights(singles(*losses)), rel=1e-6
    )


@given(st.lists(st.floats(0, 100) | st.sampled_from([nan, inf, -inf]), min_size=1, max_size=40))
def test_weights_are_positive_add_up_to_one_and_follow_the_ranking(losses: list[float]) -> None:
    evaluations = singles(*losses)
    weights = prior_weights(evaluations)
    assert np.all(weights > 0)
    assert weights.sum() == pytest.approx(1)
    ranked = sorted(range(len(losses)), key=lambda i: evaluations[i].rank_key)
    assert np.all(np.diff(weights[ranked]) <= 0)


@pytest.mark.parametrize("losses", [(0.1,) * 7, (nan,) * 7, (inf, nan, -inf, nan, inf, inf, nan)])
def test_uniform_where_the_losses_say_nothing(losses: tuple[float, ...]) -> None:
    assert prior_weights(singles(*losses)) == pytest.approx([1 / 7] * 7)


def test_uniform_over_the_finite_where_those_are_equal() -> None:
    weights = prior_weights(singles(1.0, nan, 1.0, inf))
    assert weights[[0, 2]] == pytest.approx([0.5, 0.5])
    assert np.all(weights[[1, 3]] < 1e-8)


def test_one_broken_unit_does_not_change_the_others() -> None:
    with_it = prior_weights(singles(1.0, inf, 2.0, 4.0))
    assert with_it[[0, 2, 3]] == pytest.approx(prior_weights(singles(1.0, 2.0, 4.0)))


def test_an_incomplete_loss_counts_as_none() -> None:
    weights = prior_weights([single(0, -5.0, complete=False), *singles(1.0, 2.0)])
    assert weights == pytest.approx(prior_weights(singles(nan, 1.0, 2.0)))
    assert weights[0] < 1e-8


@pytest.mark.parametrize("k", range(1, 8))
def test_units_without_a_finite_loss_are_drawn_only_where_they_must(k: int) -> None:
    space = SearchSpace.of_blocks(8)
    weights = prior_weights(singles(1.0, nan, 2.0, inf, 3.0, -inf, nan, 9.0))
    rng = np.random.default_rng(0)
    for draw in range(50):
        mask = drawn_set(space, rng, weights, k) if draw % 2 else space.sample(rng, k, [*weights])
        broken = set(mask.blocks) & {1, 3, 5, 6}
        assert mask.num_blocks == k
        assert len(broken) == max(0, k - 4)


def test_the_order_is_drawn_without_replacement_in_proportion_to_the_weights() -> None:
    weights, draws = np.array([0.6, 0.3, 0.1]), 20_000
    rng = np.random.default_rng(1)
    counts = Counter(tuple(shuffled(rng, weights)) for _ in range(draws))
    for a, b, c in permutations(range(3)):
        p = weights[a] * weights[b] / (weights[b] + weights[c])
        assert abs(counts[a, b, c] / draws - p) < 4 * sqrt(p * (1 - p) / draws)


@given(st.integers(0, 99), st.integers(1, 4))
def test_sets_satisfy_the_constraint(seed: int, k: int) -> None:
    space = SearchSpace.of_blocks(8, constraint=no_neighbours)
    weights = prior_weights(singles(*np.linspace(0, 1, 8)))
    mask = drawn_set(space, np.random.default_rng(seed), weights, k)
    assert mask.num_blocks == k
    assert space.is_valid(mask)


def test_sets_that_cannot_be_built_unit_by_unit_are_drawn_at_once() -> None:
    space = SearchSpace.of_blocks(6, constraint=lambda m: len(m) != 1)
    mask = drawn_set(space, np.random.default_rng(0), np.full(6, 1 / 6), 3)
    assert mask.num_blocks == 3


def test_no_valid_set_is_reported() -> None:
    space = SearchSpace.of_blocks(6, constraint=lambda m: len(m) < 3)
    with pytest.raises(UsageError, match="no valid mask of 3 units"):
        drawn_set(space, np.random.default_rng(0), np.full(6, 1 / 6), 3)
