"""Paired bootstrap intervals."""

import numpy as np
import pytest

from shoal.core.means import curve, mean_of
from shoal.lab.paired import compared, mean_loss, point_curve

RNG = np.random.default_rng(0)
BASE = RNG.gamma(2, 1, 300)
LOSSES = 0.6 * BASE + 0.02 * RNG.random(300)


def test_means_are_those_of_core():
    """Other resamples of the same kind: equal values, and ends a few hundredths apart."""
    found, expected = mean_loss(BASE), mean_of(BASE)
    assert found.value == pytest.approx(expected.value)
    width = expected.high - expected.low
    assert found.low == pytest.approx(expected.low, abs=0.1 * width)
    assert found.high == pytest.approx(expected.high, abs=0.1 * width)
    assert found.count == 300
    table = np.stack([BASE, LOSSES], axis=1)
    ours, theirs = point_curve(table), curve(table)
    assert (ours.steps, ours.count) == (theirs.steps, theirs.count)
    assert ours.value == pytest.approx(theirs.value)
    assert ours.low == pytest.approx(theirs.low, rel=0.05)


def test_a_difference_is_paired():
    found = compared(LOSSES, BASE)
    assert found.loss.value == pytest.approx(LOSSES.mean())
    assert found.difference.value == pytest.approx((LOSSES - BASE).mean())
    expected = mean_of(LOSSES - BASE)
    width = expected.high - expected.low
    assert found.difference.low == pytest.approx(expected.low, abs=0.1 * width)
    assert found.difference.high == pytest.approx(expected.high, abs=0.1 * width)


def test_a_gain_has_the_interval_of_the_ratio():
    """The ratio is nearly the same for every function, so it is known far better than the loss."""
    found = compared(LOSSES, BASE)
    assert found.gain.value == pytest.approx(1 - LOSSES.mean() / BASE.mean())
    assert found.gain.low < found.gain.value < found.gain.high
    assert found.gain.high - found.gain.low < 0.01
    assert found.loss.high - found.loss.low > 0.1 * found.loss.value
    assert compared(0.25 * BASE, BASE).gain.low == pytest.approx(0.75)


def test_intervals_of_gains_cover():
    """Of 95% intervals from 60 pairs about 95 in 100 hold the ratio of the means."""
    held = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        base = rng.gamma(4, 1, 60)
        found = compared(base * rng.gamma(4, 0.125, 60), base, 1).gain
        held.append(found.low <= 0.5 <= found.high)
    assert 0.89 <= np.mean(held) <= 0.99


def test_nothing_gained_and_nothing_to_gain():
    same = compared(BASE, BASE)
    assert (same.gain.value, same.gain.low, same.gain.high) == (0, 0, 0)
    zero = np.zeros(5)
    assert compared(zero, zero).gain.value == 0
    assert compared(zero + 1, zero).gain.value == -np.inf


def test_what_is_no_number_has_no_interval():
    broken = BASE.copy()
    broken[3] = np.inf
    found = compared(broken, BASE)
    assert (found.loss.value, found.loss.low, found.loss.high) == (np.inf, None, None)
    assert found.gain.value == -np.inf
    assert mean_loss(np.array([2.0])).low is None
