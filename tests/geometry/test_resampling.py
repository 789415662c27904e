import numpy as np
import pytest

from shoal.geometry.resampling import draws, interval, resampled, resampled_pairs

RNG = np.random.default_rng(0)


def _places(weights):
    return np.repeat(np.arange(len(weights)), weights.astype(int))


def test_draws_are_resamples_and_follow_the_seed():
    found = draws(6, 3, 500)
    assert found.shape == (500, 6)
    assert (found.sum(1) == 6).all()
    assert np.array_equal(found, draws(6, 3, 500))
    assert not np.array_equal(found, draws(6, 4, 500))
    # Each sequence is in a resample once on average, and absent with (1 - 1/6)^6.
    assert found.mean(0) == pytest.approx(1, abs=0.15)
    assert (found == 0).mean() == pytest.approx((5 / 6) ** 6, abs=0.03)


def test_means_of_resamples_agree_with_picking_the_sequences():
    table = RNG.normal(size=(6, 4))
    table[2] = np.nan
    weights = draws(6, 0, 20)
    slow = [np.nanmean(table[_places(w)], axis=0) for w in weights]
    assert resampled(table, weights) == pytest.approx(np.array(slow))


def test_pair_means_of_resamples_agree_with_looping_over_pairs():
    points = RNG.normal(size=(6, 3))
    distances = np.linalg.norm(points[:, None] - points[None], axis=-1)
    np.fill_diagonal(distances, 99.0)
    weights = draws(6, 0, 20)
    for w, found in zip(weights, resampled_pairs(distances, weights), strict=True):
        places = _places(w)
        # A sequence's pairs with its own copies count as pairs of different draws but have no
        # distance to give: they are left out, not zero.
        pairs = [(i, j) for i in places for j in places if i != j]
        assert found == pytest.approx(np.mean([distances[pair] for pair in pairs]))


def test_a_resample_of_one_sequence_has_no_pairs_and_none_without_a_number_no_mean():
    weights = np.array([[2.0, 0.0], [1.0, 1.0]])
    distances = np.array([[0.0, 5.0], [5.0, 0.0]])
    assert resampled_pairs(distances, weights) == pytest.approx([np.nan, 5.0], nan_ok=True)
    table = np.array([[np.nan], [3.0]])
    assert resampled(table, weights)[:, 0] == pytest.approx([np.nan, 3.0], nan_ok=True)


def test_interval_holds_the_middle_and_leaves_out_resamples_without_a_value():
    drawn = np.append(RNG.permutation(1000).astype(float), [np.nan] * 50)
    found = interval(500.0, drawn, 7)
    assert (found.value, found.low, found.high, found.count) == (500.0, 25.0, 974.0, 7)
    assert interval(1.0, drawn, 1).low is None
    assert interval(1.0, np.full(5, np.nan), 4).high is None


def test_a_sequence_out_of_the_number_range_makes_the_resamples_infinite_that_hold_it():
    weights = np.array([[0.0, 2.0, 1.0], [1.0, 1.0, 1.0]])
    assert resampled(np.array([[np.inf], [1.0], [4.0]]), weights)[:, 0].tolist() == [2.0, np.inf]
    distances = np.full((3, 3), 5.0)
    distances[0, 1:] = distances[1:, 0] = np.inf
    assert resampled_pairs(distances, weights).tolist() == [5.0, np.inf]
