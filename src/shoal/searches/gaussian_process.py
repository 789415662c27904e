"""A Gaussian process over sets of units, and expected improvement.

With x in {0, 1}^N for a set and d_H the Hamming distance,

    y(x) = c t(x) + g(x) + noise,    cov(g(x), g(x')) = s^2 exp(-d_H(x, x') / l),

where the trend t is given and the rest is fitted: c by generalised least squares and s^2 by maximum
likelihood, both in closed form, the length l and the noise over a fixed grid by what likelihood is
left. A grid is deterministic and has no starting point. As a trend that points the wrong way would
turn the search around, c is at least 0. The uncertainty of the fitted numbers is not carried on.
Everything scales with y and t, so these need no standardising.

Rasmussen and Williams (2006), chapter 2, for the posterior; Jones et al. (1998) for the expected
improvement.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular
from scipy.special import ndtr

LENGTHS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Lengths l that are tried, in Hamming distance: one swap is 2."""

NOISES = (1e-6, 1e-3, 1e-1)
"""Variances of the noise that are tried, relative to s^2."""

LEAST = 1e-12
"""Least s^2, relative to the largest square observed; it is 0 where the trend explains all."""

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class GaussianProcess:
    """A process conditioned on observations.

    Attributes:
        x: The observed sets, as rows of zeros and ones.
        length: Length l of the kernel.
        slope: Factor c of the trend.
        variance: s^2.
        factor: Lower Cholesky factor of the observations' covariance over s^2, noise included.
        weights: That covariance's inverse, times what the trend leaves of the observations.
        log_likelihood: Of the observations, without its constant.
    """

    x: Vector
    length: float
    slope: float
    variance: float
    factor: Vector
    weights: Vector
    log_likelihood: float

    @classmethod
    def given(cls, x: Vector, y: Vector, trend: Vector, length: float, noise: float) -> Self:
        """Condition on observations, with the length and the noise known.

        Args:
            x: The observed sets, as rows of zeros and ones [n, N].
            y: What was observed, finite [n].
            trend: The trend t at these sets [n].
            length: Length l.
            noise: Variance of the noise, relative to s^2.
        """
        return cls._of(kernel(x, x, length), x, y, trend, length, noise)

    @classmethod
    def fitted(cls, x: Vector, y: Vector, trend: Vector) -> Self:
        """Condition on observations, with the likeliest length and noise of the grid."""
        processes = []
        for length in LENGTHS:
            correlation = kernel(x, x, length)
            processes += [cls._of(correlation, x, y, trend, length, noise) for noise in NOISES]
        return max(processes, key=lambda process: process.log_likelihood)

    @classmethod
    def _of(
        cls, correlation: Vector, x: Vector, y: Vector, trend: Vector, length: float, noise: float
    ) -> Self:
        factor = _factor(correlation, noise)
        slope = _slope(factor, y, trend)
        rest = y - slope * trend
        weights = cho_solve((factor, True), rest)
        largest = float(np.square(y).max())
        variance = max(float(rest @ weights) / len(y), LEAST * (largest or 1.0))
        log_determinant = 2.0 * float(np.log(np.diag(factor)).sum())
        likelihood = -0.5 * (len(y) * np.log(variance) + log_determinant)
        return cls(x, length, slope, variance, factor, weights, float(likelihood))

    def predict(self, x: Vector, trend: Vector) -> tuple[Vector, Vector]:
        """Mean and standard deviation of c t + g at some sets.

        Args:
            x: The sets [m, N].
            trend: The trend t there [m].
        """
        cross = kernel(self.x, x, self.length)
        explained = solve_triangular(self.factor, cross, lower=True)
        left = np.clip(1.0 - np.square(explained).sum(0), 0.0, None)
        return self.slope * trend + cross.T @ self.weights, np.sqrt(self.variance * left)


def kernel(a: Vector, b: Vector, length: float) -> Vector:
    """exp(-d_H / length) between the rows of two binary matrices."""
    distance = a.sum(1)[:, None] + b.sum(1) - 2.0 * a @ b.T
    return np.asarray(np.exp(-distance / length))


def expected_improvement(mean: Vector, std: Vector, best: float) -> Vector:
    """E max(best - Y, 0) for Y ~ N(mean, std^2): how far below the best one may expect to come."""
    better = best - mean
    z = np.divide(better, std, out=np.zeros_like(better), where=std > 0)
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    improvement = better * ndtr(z) + std * density
    return np.where(std > 0, np.maximum(improvement, 0.0), np.maximum(better, 0.0))


def _factor(correlation: Vector, noise: float) -> Vector:
    """A Cholesky factor with as much noise on the diagonal as it takes, at least the given."""
    while True:
        try:
            return np.asarray(cholesky(correlation + noise * np.eye(len(correlation)), lower=True))
        except LinAlgError:
            noise = max(10.0 * noise, 1e-10)


def _slope(factor: Vector, y: Vector, trend: Vector) -> float:
    """Generalised least squares of y on the trend, at least 0; 1 where the trend is flat."""
    weighted = cho_solve((factor, True), trend)
    norm = float(trend @ weighted)
    return max(float(y @ weighted) / norm, 0.0) if norm > 0 else 1.0
