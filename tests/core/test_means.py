"""Means over prompts and their intervals."""

import numpy as np
import pytest

from shoal.core import means as module
from shoal.core.means import curve, curves, mean_by_prompt, mean_of, means

NAN = np.nan


def test_intervals_cover_the_mean():
    """Of 95% intervals from 40 skewed values about 95 in 100 hold the mean they come from."""
    rng = np.random.default_rng(1)
    held = [
        found.low <= 1 <= found.high
        for found in (mean_of(rng.gamma(4, 1 / 4, 40), seed=i) for i in range(300))
    ]
    assert 0.89 <= np.mean(held) <= 0.98


@pytest.mark.parametrize("few", [256, 10])
def test_interval_width_is_that_of_the_mean(monkeypatch, few):
    """Percentiles of means of resamples lie about 1.96 standard errors off, kept draws or not."""
    monkeypatch.setattr(module, "FEW", few)
    values = np.random.default_rng(0).normal(5, 2, 200)
    found = mean_of(values)
    error = values.std() / 200**0.5
    assert found.value == pytest.approx(values.mean())
    assert found.count == 200
    assert (found.high - found.value) / error == pytest.approx(1.96, rel=0.1)
    assert (found.value - found.low) / error == pytest.approx(1.96, rel=0.1)
    assert mean_of(values) == found
    assert mean_of(values, seed=1) != found


def test_one_prompt_has_no_interval_and_none_no_mean():
    found = mean_of(np.array([NAN, 3.0, NAN]))
    assert (found.value, found.low, found.high, found.count) == (3.0, None, None, 1)
    assert str(found) == "3"
    assert mean_of(np.array([NAN, NAN])) is None
    assert mean_of(np.array([])) is None


def test_equal_and_infinite_values():
    same = mean_of(np.full(20, 0.25))
    assert (same.value, same.low, same.high) == (0.25, 0.25, 0.25)
    found = mean_of(np.array([1.0, np.inf, 2.0, 3.0]))
    assert found.value == found.high == np.inf
    assert 1 <= found.low < np.inf
    assert mean_of(np.full(3, np.inf)).low == np.inf


def test_a_prompt_is_averaged_before_prompts_are():
    table = np.array([[1.0, 3.0, NAN], [10.0, NAN, NAN], [NAN, NAN, NAN]])
    assert mean_by_prompt(table) == pytest.approx([2.0, 10.0, NAN], nan_ok=True)
    found = means({"a": table, "none": np.full((3, 2), NAN)})
    assert found.keys() == {"a"}
    assert (found["a"].value, found["a"].count) == (6.0, 2)
    assert (found["a"].low, found["a"].high) == (2.0, 10.0)
    assert np.isnan(mean_by_prompt(np.zeros((2, 0)))).all()


def test_curves_count_who_is_there():
    """The middle step has no prompt, and the last a single one."""
    table = np.array([[1.0, NAN, 5.0], [3.0, NAN, NAN]])
    found = curve(table)
    assert found.steps == (1, 3)
    assert found.value == (2.0, 5.0)
    assert found.count == (2, 1)
    assert found.low == (1.0, None)
    assert found.high == (3.0, None)
    assert curves({"a": table}) == {"a": found}
