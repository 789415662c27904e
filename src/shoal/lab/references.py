"""What other learners predict from the same prompts: the marks that a lab model is held against.

All see what the model sees: point i is predicted from the i points before it. With the features
x^degree, ..., x, 1 as rows of X_i and the values seen as y_i:

    zero           0
    least_squares  phi(x_i) . pinv(X_i) y_i: least squares, of minimum norm while i <= degree.
                   Where coefficients are Gaussian, independent, of one variance, that is the
                   posterior mean without noise, before degree + 1 points and after
    ridge          phi(x_i) . c with c = argmin |X_i c - y_i|^2 + (noise / variance) |c - mean|^2,
                   mean and variance those of the coefficients in training: the posterior mean of a
                   Gaussian prior under noise of variance `noise`. There is none in the prompts;
                   what is taken instead is small, and keeps points that nearly coincide from
                   blowing up the rounding of the values. As it goes to zero c goes to
                   mean + pinv(X_i) (y_i - X_i mean)
    clipped        least_squares, cut off at the largest value that training could show: a learner
                   that is perfect but for saturation

Float64 throughout; the values themselves are rounded to float32, as the model gets them.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from shoal.config.lab import Distribution, FamilyConfig
from shoal.lab.functions import Prompts

NOISE = 1e-6
"""Variance of the noise that `ridge` assumes."""

Values = NDArray[np.float64]

Predictions = Values
"""One prediction per point [B, n]."""


def references(prompts: Prompts, trained: FamilyConfig) -> dict[str, Predictions]:
    """What each reference learner predicts.

    Args:
        prompts: The prompts.
        trained: The family of training, which is all that the learners know beforehand.
    """
    fitted = least_squares(prompts, trained.degree)
    bound = largest_value(trained)
    return {
        "least_squares": fitted,
        "ridge": ridge(prompts, trained.degree, trained.coefficients),
        "clipped": np.clip(fitted, -bound, bound),
        "zero": np.zeros_like(fitted),
    }


def least_squares(prompts: Prompts, degree: int) -> Predictions:
    """Least squares, of minimum norm where points are too few [B, n]."""

    def inverse(sizes: Values) -> Values:
        kept = sizes > np.finfo(float).eps * max(degree + 1, prompts.points) * sizes[:, :1]
        return np.where(kept, 1 / np.where(kept, sizes, 1.0), 0.0)

    return _predicted(prompts, degree, inverse, 0.0)


def ridge(prompts: Prompts, degree: int, prior: Distribution, noise: float = NOISE) -> Predictions:
    """The posterior mean under a Gaussian prior and noise [B, n].

    Args:
        prompts: The prompts.
        degree: Degree of the polynomials.
        prior: Of each coefficient; its mean and variance count.
        noise: Variance of the noise that is assumed, above 0.

    Raises:
        ValueError: If the noise is not positive.
    """
    if noise <= 0:
        raise ValueError(f"ridge needs noise above 0, got {noise}; without it is least_squares")
    middle = (prior.first + prior.second) / 2 if prior.kind == "uniform" else prior.first
    penalty = noise / prior.variance
    return _predicted(prompts, degree, lambda sizes: sizes / (sizes**2 + penalty), middle)


def largest_value(family: FamilyConfig) -> float:
    """The largest |f(x)| that a family can show; infinite where it has a Gaussian."""
    widest = family.inputs.bound
    return family.coefficients.bound * sum(widest**power for power in range(family.degree + 1))


def _predicted(
    prompts: Prompts, degree: int, inverse: Callable[[Values], Values], middle: float
) -> Predictions:
    """Predictions with coefficients middle + V inverse(S) U' (y - X middle), where X = U S V'."""
    x, y = (values.double().cpu().numpy() for values in (prompts.x, prompts.y))
    features = np.stack([x**power for power in range(degree, -1, -1)], axis=2)
    left = y - middle * features.sum(2)
    found = middle * features.sum(2)
    # By numpy, since what MKL gives in torch can depend on where its arrays lie.
    for i in range(1, prompts.points):
        u, sizes, v = np.linalg.svd(features[:, :i], full_matrices=False)
        shares = inverse(sizes) * np.einsum("bir,bi->br", u, left[:, :i])
        found[:, i] += np.einsum("br,brd,bd->b", shares, v, features[:, i])
    return found
