"""Gains and ranks of maps for which they are known."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist

from shoal.core.errors import NotFiniteError, UsageError
from shoal.geometry.maps import haar
from shoal.geometry.moments import Moments
from shoal.geometry.spectra import (
    data_gain,
    data_values,
    effective_rank,
    mean_distance,
    mean_gain,
    measured_gain,
    participation_ratio,
    sigma_max,
    spread,
    update_values,
)


def normal(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def row(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_distances_are_those_of_scipy():
    states = normal(60, 7) + 5
    assert mean_distance(states) == pytest.approx(pdist(states.numpy()).mean(), rel=1e-12)
    assert mean_distance(states.float()) == pytest.approx(pdist(states.float().numpy()).mean())


def test_gains_are_those_of_scipy():
    x, y, matrix = normal(60, 7) + 5, normal(60, 7, seed=1), normal(7, 7, seed=2)
    below = pdist(x.numpy()).mean()
    assert measured_gain(x, y) == pytest.approx(pdist(y.numpy()).mean() / below, rel=1e-12)
    mapped = pdist(x.numpy() @ matrix.numpy().T).mean()
    assert data_gain(matrix, x) == pytest.approx(mapped / below, rel=1e-12)


def test_the_data_gain_is_that_of_the_affine_map():
    x, matrix = normal(60, 7) + 5, normal(7, 7, seed=2)
    assert data_gain(matrix, x) == pytest.approx(measured_gain(x, x @ matrix.T + 9), rel=1e-12)


@pytest.mark.parametrize("width", [2, 9, 64])
def test_an_orthogonal_map_has_gain_one(width):
    turn = haar(width, 3)
    x = normal(80, width) * 10 + 3
    for gain in (
        data_gain(turn, x),
        measured_gain(x, x @ turn.T),
        sigma_max(turn),
        mean_gain(turn),
    ):
        assert gain == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("scale", [0.0, 0.01, 1.0, 250.0])
def test_a_scaled_identity_has_its_scale(scale):
    matrix, x = scale * torch.eye(5), normal(80, 5)
    found = (data_gain(matrix, x), sigma_max(matrix), mean_gain(matrix))
    assert found == pytest.approx((scale,) * 3, rel=1e-6)


def test_gain_depends_on_the_data_and_the_largest_does_not():
    """Stretched by 10 along one axis: the gain of data along it, and of data across."""
    matrix = torch.diag(row(10, 1, 1))
    along, across = normal(50, 3) * row(1, 0, 0), normal(50, 3) * row(0, 1, 1)
    assert data_gain(matrix, along) == pytest.approx(10)
    assert data_gain(matrix, across) == pytest.approx(1)
    assert sigma_max(matrix) == pytest.approx(10)
    assert mean_gain(matrix) == pytest.approx(math.sqrt(102 / 3))


def test_inputs_that_are_all_the_same_have_no_gain():
    same = torch.full((5, 3), 0.1)
    assert math.isnan(measured_gain(same, normal(5, 3)))
    assert math.isnan(data_gain(torch.eye(3), same))


def test_wrong_tables_are_refused():
    with pytest.raises(UsageError, match="2 or more"):
        mean_distance(normal(1, 4))
    with pytest.raises(UsageError, match="same tokens"):
        measured_gain(normal(4, 4), normal(5, 4))


@pytest.mark.parametrize("rank", [effective_rank, participation_ratio])
def test_ranks_of_known_spectra(rank):
    assert rank(torch.ones(17)) == pytest.approx(17)
    assert rank(row(5, 0, 0, 0)) == pytest.approx(1)
    assert rank(row(3, 3, 0, 0)) == pytest.approx(2)
    assert rank(torch.zeros(4)) == 0


@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.9])
def test_ranks_of_a_geometric_spectrum(ratio):
    """s_k = q^k without end: entropy -log(1-q) - q log(q) / (1-q); (1+q^2) / (1-q^2)."""
    values = ratio ** torch.arange(400, dtype=torch.float64)
    entropy = -math.log(1 - ratio) - ratio * math.log(ratio) / (1 - ratio)
    assert effective_rank(values) == pytest.approx(math.exp(entropy), rel=1e-9)
    assert participation_ratio(values) == pytest.approx((1 + ratio**2) / (1 - ratio**2), rel=1e-9)


def test_two_unequal_values():
    p = 0.75
    expected = math.exp(-p * math.log(p) - (1 - p) * math.log(1 - p))
    assert effective_rank(row(3, 1)) == pytest.approx(expected)
    assert participation_ratio(row(3, 1)) == pytest.approx(100 / 82)


@settings(max_examples=40)
@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=12), st.sampled_from([1e-150, 1.0, 1e150]))
def test_ranks_lie_between_one_and_the_width_and_ignore_scale(values, scale):
    known = torch.tensor(values, dtype=torch.float64)
    known[known < 1e-3] = 0
    found = spread(known * scale)
    if not known.any():
        assert (found.effective_rank, found.participation_ratio) == (0, 0)
        return
    for one in (found.effective_rank, found.participation_ratio):
        assert 1 - 1e-9 <= one <= len(values) + 1e-9
    assert found.effective_rank == pytest.approx(effective_rank(known))
    assert found.participation_ratio == pytest.approx(participation_ratio(known))


@pytest.mark.parametrize("rank", [effective_rank, participation_ratio])
def test_no_spectrum_is_refused(rank):
    with pytest.raises(UsageError, match="singular"):
        rank(row(1, -1))
    with pytest.raises(UsageError, match="singular"):
        rank(torch.empty(0))
    with pytest.raises(NotFiniteError):
        rank(row(1, math.nan))


def test_values_of_the_update():
    identity = torch.eye(6, dtype=torch.float64)
    rank_one = torch.outer(normal(6), normal(6, seed=1))
    assert not update_values(identity).any()
    values = update_values(identity + rank_one)
    assert (values > 0).sum() == 1
    assert values[0] == pytest.approx(float(normal(6).norm() * normal(6, seed=1).norm()))
    assert torch.allclose(update_values(-identity), torch.full((6,), 2.0).double())
    # What rounding leaves of an orthogonal similarity is no update.
    turn = haar(6, 1)
    assert not update_values(turn @ identity @ turn.T).any()


def test_values_on_the_data_are_those_of_the_tokens():
    x, matrix = normal(300, 6) @ normal(6, 6, seed=2) + 4, normal(6, 6, seed=3)
    moments = Moments(6)
    moments.add(x[:100], x[:100])
    moments.add(x[100:], x[100:])
    update = (x - x.mean(0)) @ (matrix - torch.eye(6)).T
    expected = np.linalg.svd(update.numpy(), compute_uv=False) / math.sqrt(300)
    assert torch.allclose(data_values(matrix, moments), torch.from_numpy(expected), rtol=1e-6)


def test_directions_without_data_do_not_count():
    """An update of all 8 directions on data of one: its rank on the data is one."""
    moments = Moments(8)
    x = torch.outer(normal(100), normal(8, seed=1))
    moments.add(x, x)
    matrix = 3 * haar(8, 2)
    values = data_values(matrix, moments)
    assert (values > 0).sum() == 1
    assert spread(values).effective_rank == pytest.approx(1, abs=1e-12)
    assert spread(update_values(matrix)).effective_rank > 7
    assert not data_values(torch.eye(8), moments).any()
    with pytest.raises(UsageError, match="no token"):
        data_values(matrix, Moments(8))
