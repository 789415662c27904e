import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from shoal.searches import gaussian_process
from shoal.searches.gaussian_process import (
    LENGTHS,
    NOISES,
    GaussianProcess,
    Vector,
    expected_improvement,
    kernel,
)


def data(seed: int, n: int = 12, units: int = 9) -> tuple[Vector, Vector, Vector]:
    rng = np.random.default_rng(seed)
    distinct = rng.permutation(2**units)[: n + 5]
    x = ((distinct[:, None] >> np.arange(units)) & 1).astype(float)
    return x, rng.normal(size=n + 5), rng.normal(size=n + 5) + 0.5


def test_kernel_is_the_stated_one() -> None:
    x, *_ = data(0)
    for a in x[:4]:
        for b in x[:4]:
            differing = sum(p != q for p, q in zip(a, b, strict=True))
            value = kernel(a[None], b[None], 3.0)[0, 0]
            assert value == pytest.approx(np.exp(-differing / 3.0))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("length", "noise"), [(2.0, 0.3), (5.0, 1e-3)])
def test_posterior_equals_the_direct_formula(seed: int, length: float, noise: float) -> None:
    x, y, trend = data(seed)
    y = y + 2 * trend
    seen, new = slice(0, 12), slice(12, 17)
    process = GaussianProcess.given(x[seen], y[seen], trend[seen], length, noise)
    mean, std = process.predict(x[new], trend[new])

    def correlation(a: Vector, b: Vector) -> Vector:
        return np.array([[np.exp(-np.abs(p - q).sum() / length) for q in b] for p in a])

    inverse = np.linalg.inv(correlation(x[seen], x[seen]) + noise * np.eye(12))
    slope = (trend[seen] @ inverse @ y[seen]) / (trend[seen] @ inverse @ trend[seen])
    rest = y[seen] - slope * trend[seen]
    variance = rest @ inverse @ rest / 12
    cross = correlation(x[new], x[seen])
    assert slope > 0
    assert process.slope == pytest.approx(slope)
    assert mean == pytest.approx(slope * trend[new] + cross @ inverse @ rest)
    left = [variance * (1 - row @ inverse @ row) for row in cross]
    assert std == pytest.approx(np.sqrt(left))


def test_likelihood_is_that_of_the_normal_distribution() -> None:
    # Up to a constant that is the same for all lengths and noises.
    x, y, trend = data(3, n=12)
    constants = []
    for length, noise in [(1.0, 0.1), (4.0, 1e-3), (16.0, 0.5)]:
        process = GaussianProcess.given(x, y, trend, length, noise)
        covariance = process.variance * (kernel(x, x, length) + noise * np.eye(len(x)))
        rest = y - process.slope * trend
        exact = -0.5 * (
            rest @ np.linalg.solve(covariance, rest)
            + np.linalg.slogdet(covariance)[1]
            + len(y) * np.log(2 * np.pi)
        )
        constants.append(exact - process.log_likelihood)
    assert constants == pytest.approx([constants[0]] * 3)


def test_interpolates_what_has_no_noise() -> None:
    x, y, trend = data(1)
    process = GaussianProcess.given(x, y, trend, 4.0, 1e-9)
    mean, std = process.predict(x, trend)
    assert mean == pytest.approx(y, abs=1e-6)
    assert (std < 1e-3 * y.std()).all()


def test_far_from_all_data_only_the_trend_is_known() -> None:
    x = np.zeros((3, 400))
    x[0, :1], x[1, :2], x[2, :3] = 1, 1, 1
    process = GaussianProcess.given(x, np.array([2.0, 4.5, 5.5]), np.arange(1.0, 4.0), 2.0, 0.1)
    mean, std = process.predict(np.ones((1, 400)), np.array([7.0]))
    assert mean[0] == pytest.approx(7.0 * process.slope)
    assert std[0] == pytest.approx(np.sqrt(process.variance))


def test_fitted_is_the_likeliest_of_the_grid() -> None:
    x, y, trend = data(2)
    grid = [GaussianProcess.given(x, y, trend, a, b) for a in LENGTHS for b in NOISES]
    fitted = GaussianProcess.fitted(x, y, trend)
    assert fitted.log_likelihood == max(process.log_likelihood for process in grid)
    assert len({process.log_likelihood for process in grid}) > 1


@pytest.mark.parametrize(("rough", "smooth"), [(1.0, 16.0)])
def test_lengths_are_recovered(rough: float, smooth: float) -> None:
    rng = np.random.default_rng(0)
    x = (rng.random((150, 12)) < 0.5).astype(float)
    chosen = []
    for length in (rough, smooth):
        covariance = kernel(x, x, length) + 1e-6 * np.eye(150)
        y = np.linalg.cholesky(covariance) @ rng.normal(size=150)
        chosen.append(GaussianProcess.fitted(x, y, np.zeros(150)).length)
    assert chosen[0] <= 2.0 < 8.0 <= chosen[1]


@pytest.mark.parametrize("factor", [1e-8, 1e8])
def test_scales_with_the_loss(factor: float) -> None:
    x, y, trend = data(4)
    one = GaussianProcess.fitted(x, y, trend).predict(x[::-1], trend)
    other = GaussianProcess.fitted(x, factor * y, factor * trend).predict(x[::-1], factor * trend)
    assert other[0] == pytest.approx(factor * one[0], rel=1e-6, abs=1e-9 * factor)
    assert other[1] == pytest.approx(factor * one[1], rel=1e-6, abs=1e-9 * factor)


def test_what_the_trend_explains_is_predicted_without_doubt() -> None:
    x, _, trend = data(5)
    process = GaussianProcess.fitted(x[:8], 1.5 * trend[:8], trend[:8])
    mean, std = process.predict(x[8:], trend[8:])
    assert process.slope == pytest.approx(1.5)
    assert mean == pytest.approx(1.5 * trend[8:])
    assert (std < 1e-4).all()


def test_a_trend_that_points_the_wrong_way_is_ignored() -> None:
    x, _, trend = data(6)
    assert GaussianProcess.given(x, -trend, trend, 2.0, 1e-3).slope == 0.0


@pytest.mark.parametrize("y", [np.zeros(4), np.ones(4), np.array([0.0, 0.0, 0.0, 9.0])])
def test_singular_covariances_do_no_harm(y: Vector) -> None:
    x = np.ones((4, 5))
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.cholesky(kernel(x, x, 2.0) - 1e-12)
    for noise in (0.0, 1e-30):
        process = GaussianProcess.given(x, y, np.zeros(4), 2.0, noise)
        mean, std = process.predict(np.ones((1, 5)), np.zeros(1))
        assert mean[0] == pytest.approx(y.mean(), abs=1e-3)
        assert np.isfinite(std).all()


def test_a_single_observation_is_enough() -> None:
    process = GaussianProcess.fitted(np.eye(3)[:1], np.array([2.0]), np.array([1.0]))
    mean, std = process.predict(np.eye(3), np.array([1.0, 2.0, 3.0]))
    assert mean == pytest.approx([2.0, 4.0, 6.0])
    assert np.isfinite(std).all()


@settings(deadline=None)
@given(st.floats(-3, 3), st.floats(0.05, 3), st.floats(-3, 3))
def test_expected_improvement_equals_the_integral(mean: float, std: float, best: float) -> None:
    def improvement(y: float) -> float:
        return float((best - y) * norm.pdf(y, mean, std))

    low = min(best, mean) - 12 * std
    integral = quad(improvement, low, best, points=[mean] if low < mean < best else None)[0]
    found = expected_improvement(np.array([mean]), np.array([std]), best)[0]
    assert found == pytest.approx(integral, rel=1e-5, abs=1e-8)


def test_expected_improvement_without_doubt_is_the_improvement() -> None:
    mean = np.array([1.0, 3.0])
    assert expected_improvement(mean, np.zeros(2), 2.5).tolist() == [1.5, 0.0]


def test_expected_improvement_is_never_negative() -> None:
    mean, std = np.linspace(0, 60, 200), np.full(200, 1.0)
    found = expected_improvement(mean, std, 0.0)
    assert (found >= 0).all()
    assert (np.diff(found) <= 0).all()


def test_the_jitter_grows_until_there_is_a_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    real = gaussian_process.cholesky

    def noted(matrix: Vector, lower: bool) -> Vector:
        tried.append(matrix[0, 0] - 1.0)
        return np.asarray(real(matrix, lower=lower))

    monkeypatch.setattr(gaussian_process, "cholesky", noted)
    indefinite = np.array([[1.0, 1.5], [1.5, 1.0]])
    factor = gaussian_process._factor(indefinite, 0.0)
    assert len(tried) > 2
    assert tried == sorted(tried)
    assert np.isfinite(factor).all()
    assert 0.5 < tried[-1] <= 10.0
