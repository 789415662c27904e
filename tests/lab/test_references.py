"""Reference learners against numpy and scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from shoal.config.lab import Distribution, FamilyConfig
from shoal.lab.functions import Prompts, draw_prompts, zero_error
from shoal.lab.references import NOISE, largest_value, least_squares, references, ridge

DEGREES = [1, 2, 3]


def prompts_of(degree, count=40, points=9, half=1.0, seed=0):
    coefficients = Distribution.uniform(half)
    return draw_prompts(FamilyConfig(degree=degree, coefficients=coefficients), count, points, seed)


def prefixes(prompts, degree):
    """Function, point, features before it, values before it, features there."""
    for row in range(len(prompts)):
        x, y = (t[row].double().numpy() for t in (prompts.x, prompts.y))
        for i in range(1, prompts.points):
            yield (
                row,
                i,
                np.vander(x[:i], degree + 1),
                y[:i],
                np.vander(x[i : i + 1], degree + 1)[0],
            )


@pytest.mark.parametrize("degree", DEGREES)
def test_least_squares_is_numpy_s(degree):
    """Also while points are too few, where numpy's solution has the least norm."""
    prompts = prompts_of(degree)
    found = least_squares(prompts, degree)
    assert found.dtype == np.float64
    assert (found[:, 0] == 0).all()
    for row, i, before, y, at in prefixes(prompts, degree):
        expected = at @ np.linalg.lstsq(before, y, rcond=None)[0]
        condition = np.linalg.cond(before)
        assert found[row, i] == pytest.approx(
            expected, rel=1e-14 * condition, abs=1e-13 * condition
        )


@pytest.mark.parametrize("degree", DEGREES)
def test_least_squares_knows_the_function_from_degree_and_two_points_on(degree):
    """Up to the values' rounding, which points that nearly coincide make larger."""
    prompts = prompts_of(degree, count=200, points=20)
    errors = (least_squares(prompts, degree) - prompts.y.double().numpy()) ** 2
    known = np.median(errors, axis=0)
    assert (known[degree + 1 :] < 1e-9).all()
    assert (known[: degree + 1] > 1e-4).all()
    assert errors[:, -1].mean() < 1e-9


@pytest.mark.parametrize("noise", [NOISE, 0.1, 2.0])
@pytest.mark.parametrize("degree", DEGREES)
def test_ridge_is_scikit_learn_s(degree, noise):
    prior = Distribution.uniform(2.0)
    prompts = prompts_of(degree, count=15)
    found = ridge(prompts, degree, prior, noise)
    assert (found[:, 0] == 0).all()
    for row, i, before, y, at in prefixes(prompts, degree):
        theirs = Ridge(alpha=noise / prior.variance, fit_intercept=False, solver="svd")
        assert found[row, i] == pytest.approx(at @ theirs.fit(before, y).coef_, rel=1e-6, abs=1e-6)


def test_ridge_tends_to_least_squares_of_minimum_norm():
    prompts = prompts_of(2, half=2.0)
    prior = Distribution.uniform(2.0)
    target = least_squares(prompts, 2)
    gaps = [np.median(np.abs(ridge(prompts, 2, prior, n) - target)) for n in (1e-1, 1e-4, 1e-10)]
    assert gaps[0] > 10 * gaps[1] > 100 * gaps[2]
    assert np.median(np.abs(ridge(prompts, 2, prior, 1e-12) - target)[:, 1:3]) < 1e-9


def test_ridge_starts_from_the_mean_of_training():
    """Before any point it predicts the mean function; with one it fits that point."""
    prior = Distribution(kind="gaussian", first=2.0, second=0.5)
    family = FamilyConfig(coefficients=prior)
    prompts = draw_prompts(family, 200, 5, 0)
    found = ridge(prompts, 1, prior)
    x, y = prompts.x.double().numpy(), prompts.y.double().numpy()
    assert found[:, 0] == pytest.approx(2 * x[:, 0] + 2)
    wrong = least_squares(prompts, 1)
    assert ((found - y) ** 2)[:, 1].mean() < 0.5 * ((wrong - y) ** 2)[:, 1].mean()


def test_ridge_is_the_best_linear_guess():
    """Under noise of its variance it beats the same with less or more."""
    prior = Distribution(kind="gaussian", first=0.0, second=1.0)
    prompts = draw_prompts(FamilyConfig(coefficients=prior), 4000, 4, 0)
    noisy = prompts.y + 0.5 * torch.randn(prompts.y.shape, generator=torch.manual_seed(0))
    seen = Prompts(prompts.x, noisy, prompts.coefficients)
    errors = {
        noise: ((ridge(seen, 1, prior, noise) - prompts.y.double().numpy()) ** 2)[:, 3].mean()
        for noise in (0.25, 0.01, 4.0)
    }
    assert errors[0.25] < min(errors[0.01], errors[4.0])


@pytest.mark.parametrize("degree", DEGREES)
def test_zero_has_the_error_of_the_family(degree):
    family = FamilyConfig(degree=degree)
    prompts = draw_prompts(family, 20_000, 4, 1)
    predicted = references(prompts, family)["zero"]
    squares = ((predicted - prompts.y.double().numpy()) ** 2).mean(1)
    error = squares.std() / len(squares) ** 0.5
    assert squares.mean() == pytest.approx(zero_error(family), abs=4 * error)


def test_clipped_is_perfect_inside_and_flat_outside():
    trained = FamilyConfig()
    prompts = prompts_of(1, half=5.0, points=12)
    found = references(prompts, trained)
    assert set(found) == {"least_squares", "ridge", "clipped", "zero"}
    inside = np.abs(found["least_squares"]) <= 2
    assert (found["clipped"][inside] == found["least_squares"][inside]).all()
    assert set(np.abs(found["clipped"][~inside])) == {2.0}


def test_largest_value():
    """5 * 5 + 5 for U(-5,5) of degree 1, and no function exceeds it."""
    wide = Distribution.uniform(5.0)
    assert largest_value(FamilyConfig(coefficients=wide, inputs=wide)) == 30
    family = FamilyConfig(degree=3, inputs=Distribution.uniform(1.5))
    reached = draw_prompts(family, 100_000, 1, 0).y.abs().max().item()
    assert 0.8 * largest_value(family) < reached <= largest_value(family)
    gaussian = Distribution(kind="gaussian", first=0.0, second=1.0)
    assert largest_value(FamilyConfig(inputs=gaussian)) == np.inf


def test_ridge_needs_noise():
    with pytest.raises(ValueError, match="above 0"):
        ridge(prompts_of(1), 1, Distribution.uniform(1.0), 0.0)
