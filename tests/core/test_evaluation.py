from math import inf, isnan, nan, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask

MASK = Mask.of(4, [1])
losses = st.floats(-100, 100)


@given(st.lists(losses, min_size=2, max_size=20))
def test_equal_weights_give_the_textbook_mean_and_standard_error(values: list[float]) -> None:
    found = Evaluation.of(MASK, values)
    assert found.mean == pytest.approx(np.mean(values), abs=1e-9)
    assert found.stderr == pytest.approx(np.std(values, ddof=1) / sqrt(len(values)), abs=1e-9)
    assert found.losses == tuple(values)
    assert found.mask == MASK


@given(st.lists(losses, min_size=2, max_size=10), st.floats(0.1, 50))
def test_the_scale_of_the_weights_does_not_matter(values: list[float], scale: float) -> None:
    weights = np.arange(1, len(values) + 1)
    one, other = (Evaluation.of(MASK, values, w) for w in (weights, weights * scale))
    assert one.mean == pytest.approx(other.mean, abs=1e-9)
    assert one.stderr == pytest.approx(other.stderr, abs=1e-9)


def test_the_weighted_mean_is_per_token() -> None:
    # 3 tokens of loss 1 and 1 token of loss 5: 8 nats over 4 tokens.
    assert Evaluation.of(MASK, [1, 5], [3, 1]).mean == 2.0


def test_the_weighted_standard_error_is_that_of_the_ratio() -> None:
    rng = np.random.default_rng(0)
    found, means = [], []
    for _ in range(2000):
        weights = rng.integers(1, 20, 50)
        values = rng.normal(size=50) + 0.1 * weights
        evaluation = Evaluation.of(MASK, values, weights)
        found.append(evaluation.stderr)
        means.append(evaluation.mean)
    assert np.mean(found) == pytest.approx(np.std(means), rel=0.07)


@pytest.mark.parametrize(
    "values", [[nan, 1.0], [inf, 1.0], [-inf, 1.0], [inf, -inf], [1e308, 1e308], []]
)
def test_a_mean_that_is_not_finite_ranks_last(values: list[float]) -> None:
    found = Evaluation.of(MASK, values)
    assert not found.finite
    assert found.rank_key == inf
    assert isnan(found.stderr)
    assert found.rank_key > Evaluation.of(MASK, [1e300]).rank_key


def test_one_example_has_no_standard_error() -> None:
    found = Evaluation.of(MASK, [2.5])
    assert found.mean == found.rank_key == 2.5
    assert found.finite
    assert isnan(found.stderr)
