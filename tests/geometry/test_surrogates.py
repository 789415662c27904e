"""Fits against scikit-learn and against the token matrices; what must hold of special data."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from shoal.core.errors import UsageError
from shoal.geometry.linear import linear_record
from shoal.geometry.maps import inverse_map
from shoal.geometry.moments import Moments
from shoal.geometry.spectra import spread, update_values
from shoal.geometry.surrogates import RIDGES, fit, r_squared


def normal(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def moments_of(x, y, seed=0):
    found = Moments(x.shape[1], seed)
    for start in range(0, len(x), 37):
        found.add(x[start : start + 37], y[start : start + 37])
    return found


def mixed(width, seed=1):
    """Correlated directions of very different size."""
    return normal(width, width, seed=seed) * torch.logspace(0, -2, width).double()


def block(x, noise=0.3, seed=5):
    """A block that is linear up to noise, with offsets."""
    width = x.shape[1]
    update = x @ normal(width, width, seed=3).T * 0.2 + noise * normal(*x.shape, seed=seed)
    return x + update + 2


def data(count=300, width=8, seed=0, noise=0.3):
    x = normal(count, width, seed=seed) @ mixed(width) + 4
    return x, block(x, noise, seed + 50)


def both(train, held):
    return moments_of(*train), moments_of(*held, seed=1)


def r2_of(surrogate, train, held):
    """R^2 of state and update from the tokens themselves."""
    (x, y), (x0, y0) = held, train
    sse = (y - surrogate.map(x)).square().sum()
    about_y, about_u = y - y0.mean(0), (y - x) - (y0 - x0).mean(0)
    return float(1 - sse / about_y.square().sum()), float(1 - sse / about_u.square().sum())


@pytest.mark.parametrize("ridge", [0.0, 1e-6, 1e-3, 0.1, 10.0])
def test_it_is_the_ridge_regression_of_the_update(ridge):
    train, held = data(), data(120, seed=7)
    found = fit(*both(train, held), [ridge])
    x, u = train[0].numpy(), (train[1] - train[0]).numpy()
    centred = x - x.mean(0)
    alpha = ridge * np.trace(centred.T @ centred) / 8
    oracle = Ridge(alpha=alpha, solver="svd").fit(x, u)
    np.testing.assert_allclose(found.matrix.numpy(), np.eye(8) + oracle.coef_, rtol=0, atol=1e-9)
    predicted = held[0].numpy() + oracle.predict(held[0].numpy())
    np.testing.assert_allclose(found.map(held[0]).numpy(), predicted, rtol=0, atol=1e-9)
    assert found.ridge == ridge
    assert found.tokens == 300


@pytest.mark.parametrize("ridge", [0.0, 1e-4, 1.0])
@pytest.mark.parametrize("noise", [0.0, 0.3, 30.0])
def test_r2_is_that_of_the_tokens(ridge, noise):
    train, held = data(noise=noise), data(120, seed=7, noise=noise)
    found = fit(*both(train, held), [ridge])
    assert (found.r2, found.r2_update) == pytest.approx(r2_of(found, train, held), abs=1e-11)


def test_r2_where_the_means_differ():
    """SST is about the training mean, and the error holds that of the mean."""
    train, (x, _) = data(), data(120, seed=7)
    held = (x + 3, block(x + 3) + 5)
    found = fit(*both(train, held), [1e-3])
    assert (found.r2, found.r2_update) == pytest.approx(r2_of(found, train, held), abs=1e-11)


@pytest.mark.parametrize("count", [10, 40, 300])
def test_the_best_ridge_is_chosen(count):
    """By trying each, and measuring on the tokens."""
    train, held = data(count, noise=2.0), data(200, seed=7, noise=2.0)
    ridges = (*RIDGES, 1.0, 10.0)
    found = fit(*both(train, held), ridges)
    scores = {r: r2_of(fit(*both(train, held), [r]), train, held)[0] for r in ridges}
    assert found.ridge == max(scores, key=scores.__getitem__)
    assert found.r2 == pytest.approx(max(scores.values()), abs=1e-11)


def test_few_noisy_tokens_want_a_larger_ridge():
    held = data(200, seed=7, noise=2.0)
    ridges = (1e-6, 1e-2, 1.0)
    few, many = (fit(*both(data(n, noise=2.0), held), ridges) for n in (10, 2000))
    assert few.ridge > many.ridge
    assert few.few_tokens
    assert not many.few_tokens


def test_ties_go_to_the_larger_ridge():
    x = normal(50, 4)
    assert fit(moments_of(x, x + 1), moments_of(x, x + 1), [0.1, 1e-3]).ridge == 0.1


@pytest.mark.parametrize("width", [3, 16])
def test_a_linear_block_is_recovered_and_undone(width):
    x = normal(400, width) @ (torch.eye(width) + 0.1 * normal(width, width, seed=2)) + 1
    matrix = torch.eye(width) + 0.2 * normal(width, width, seed=3) / width**0.5
    y = x @ matrix.T - 3
    found = fit(moments_of(x[:300], y[:300]), moments_of(x[300:], y[300:]), [0.0])
    assert found.r2 == pytest.approx(1, abs=1e-12)
    assert found.r2_update == pytest.approx(1, abs=1e-10)
    assert torch.allclose(found.matrix, matrix, atol=1e-10)
    back = inverse_map(found, 0.0)
    assert torch.allclose(back(y), x, atol=1e-9)


@pytest.mark.parametrize("ridge", [0.0, 1e-6, 1e-2])
def test_directions_without_data_are_left_alone(ridge):
    """Data in 3 of 20 directions, none of them an axis; the block turns what it gets."""
    basis = torch.linalg.qr(normal(20, 20, seed=4)).Q
    x = normal(500, 3) @ basis[:3] + normal(20, seed=6)
    y = x + (x - x.mean(0)) @ normal(20, 20, seed=8)
    found = fit(moments_of(x[:400], y[:400]), moments_of(x[400:], y[400:]), [ridge])
    empty = basis[3:].T
    assert torch.allclose(found.matrix @ empty, empty, atol=1e-11)
    assert torch.linalg.matrix_rank(found.matrix) == 20
    values = update_values(found.matrix)
    assert (values > 0).sum() == 3
    assert 1 < spread(values).effective_rank <= 3


def test_fewer_tokens_than_the_width():
    """Ridge 0 is then the least update that passes through the tokens."""
    x = normal(10, 30)
    y = x + x @ normal(30, 30, seed=2)
    train = moments_of(x, y)
    found = fit(train, moments_of(x, y, 1), [0.0])
    assert torch.allclose(found.map(x), y, atol=1e-9)
    centred, added = x - x.mean(0), (y - x) - (y - x).mean(0)
    least = torch.linalg.pinv(centred) @ added
    assert torch.allclose(found.matrix, torch.eye(30) + least.T, atol=1e-9)
    other = normal(50, 30, seed=9)
    held = fit(train, moments_of(other, other + other @ normal(30, 30, seed=2), 1))
    assert held.matrix.isfinite().all()
    assert held.few_tokens


@pytest.mark.parametrize("offset", [0.0, 0.1, 1e4])
def test_inputs_that_do_not_vary(offset):
    """There is nothing to learn from: A = I, and rounding is not taken for variation."""
    x = torch.full((40, 5), offset, dtype=torch.float64)
    y = x + 0.7 + normal(40, 5)
    found = fit(moments_of(x, y), moments_of(x, y))
    assert torch.equal(found.matrix, torch.eye(5).double())
    assert found.r2 == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("offset", [0.0, 0.1, 1e4])
def test_updates_that_do_not_vary_are_predicted(offset):
    """A block that adds a constant: SST of the update is 0 and so is SSE."""
    x = normal(40, 5) + offset
    y = x + torch.linspace(0, 0.7, 5).double()
    found = fit(moments_of(x, y), moments_of(x, y))
    assert torch.equal(found.matrix, torch.eye(5).double())
    assert found.r2 == found.r2_update == 1.0
    assert spread(update_values(found.matrix)).effective_rank == 0


def test_outputs_that_do_not_vary():
    """A block that erases: A = 0. Nothing of y varies and nothing is missed."""
    x = normal(40, 5)
    found = fit(moments_of(x, torch.ones(40, 5)), moments_of(x, torch.ones(40, 5)), [0.0])
    assert torch.allclose(found.matrix, torch.zeros(5, 5).double(), atol=1e-12)
    assert found.r2 == 1.0
    # With a ridge some of x stays, which is an error where nothing varies.
    assert fit(moments_of(x, torch.ones(40, 5)), moments_of(x, torch.ones(40, 5)), [0.1]).r2 == 0.0


def test_the_rule_for_no_variation():
    assert r_squared(0.0, 0.0, 1.0) == 1.0
    assert r_squared(0.5, 0.0, 1.0) == 0.0
    assert r_squared(0.5, 0.25, 1.0) == -1.0
    assert r_squared(0.0, 0.0, 0.0) == 1.0


@pytest.mark.parametrize("ridges", [[], [-1.0], [float("nan")], [float("inf")]])
def test_wrong_ridges_are_refused(ridges):
    with pytest.raises(UsageError, match="ridges"):
        fit(*both(data(), data(40)), ridges)


def test_wrong_tokens_are_refused():
    full = moments_of(*data(40))
    with pytest.raises(UsageError, match="tokens"):
        fit(full, Moments(8))
    with pytest.raises(UsageError, match="tokens"):
        fit(Moments(8), full)
    with pytest.raises(UsageError, match="widths"):
        fit(full, Moments(7))


def test_the_record_of_a_scaling_block():
    """y = 3 x: every gain is 3, and the update 2 I has all directions."""
    x, other = normal(4000, 6), normal(600, 6, seed=4)
    surrogate, found = linear_record(
        moments_of(x, 3 * x), moments_of(other, 3 * other), 4, "all", "ood", [0.0]
    )
    assert torch.allclose(surrogate.matrix, 3 * torch.eye(6).double(), atol=1e-10)
    gains = (found.measured_gain, found.data_gain, found.sigma_max, found.frobenius)
    assert gains == pytest.approx((3, 3, 3, 3), abs=1e-9)
    assert found.effective_rank == pytest.approx(6, abs=1e-9)
    assert found.participation_ratio == pytest.approx(6, abs=1e-9)
    assert found.data_effective_rank == pytest.approx(6, abs=0.01)
    assert (found.layer, found.positions, found.distribution) == (4, "all", "ood")
    assert (found.tokens, found.accepted, found.r2) == (4000, True, pytest.approx(1))


def test_the_threshold_decides():
    train, held = both(data(noise=3.0), data(200, seed=7, noise=3.0))
    r2 = linear_record(train, held, 0, "all", "id")[1].r2
    assert 0 < r2 < 0.9
    for threshold, accepted in ((r2, True), (r2 + 1e-9, False)):
        record = linear_record(train, held, 0, "all", "id", threshold=threshold)[1]
        assert record.accepted is accepted
