"""Linear surrogates of blocks: ridge regression of what a block adds on what enters it.

    u ~ (A - I)(x - mean x) + mean u,     u = y - x

The update is fitted and not the output, so a direction without data is left as it is (A = I there)
instead of being erased; the ridge pulls A towards I for the same reason. With W = (A - I)^T,

    W = (XX + n c I)^-1 XU,     c = ridge * mean eigenvalue of XX / n

which in the eigenvectors V of XX is V diag(1 / (n l + n c)) V^T XU: one decomposition, 9 d^3 steps,
serves all ridges, and the held-out error of each is a quadratic form of d numbers.

R^2 is held out, 1 - SSE / SST with both summed over coordinates and SST about the training mean.
What varies by less than 1e-12 of the states' length is rounding and counts as not varying. Where
SST is 0 by that measure, R^2 is 1 if SSE is too and else 0, as in scikit-learn.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shoal.core.errors import UsageError
from shoal.geometry.maps import AffineMap
from shoal.geometry.moments import Moments

RIDGES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
"""Default ridges to choose from, relative to the mean eigenvalue of the inputs' covariance."""

ENOUGH = 20
"""Tokens per number in a state below which a fit counts as one of few tokens."""

ROUNDING = 1e-12
"""Variation over length of states that is rounding."""


@dataclass(frozen=True, eq=False)
class Surrogate:
    """A block as a linear map: y ~ A (x - input_mean) + output_mean.

    Attributes:
        matrix: A [d, d].
        input_mean: Mean of what enters [d].
        output_mean: Mean of what leaves [d].
        ridge: The one chosen, relative to the mean eigenvalue of the inputs' covariance.
        r2: Held out, of what leaves.
        r2_update: Held out, of what the block adds: the harder one, since y contains x.
        tokens: Tokens of the fit.
    """

    matrix: Tensor
    input_mean: Tensor
    output_mean: Tensor
    ridge: float
    r2: float
    r2_update: float
    tokens: int

    @property
    def map(self) -> AffineMap:
        """The map from what enters to what leaves."""
        return AffineMap(self.matrix, self.input_mean, self.output_mean)

    @property
    def few_tokens(self) -> bool:
        """Whether there were fewer than 20 tokens per number in a state: R^2 then varies much."""
        return self.tokens < ENOUGH * len(self.input_mean)


def fit(train: Moments, held: Moments, ridges: Sequence[float] = RIDGES) -> Surrogate:
    """Fit the surrogate with the ridge that has the best held-out R^2; on ties the larger.

    Args:
        train: Tokens of the fit; they may be fewer than the width.
        held: Tokens of other sequences.
        ridges: To choose from; 0 gives least squares, of least |A - I| where it is not unique.

    Raises:
        UsageError: If there are too few tokens, the widths differ or a ridge is negative.
    """
    _check(train, held, ridges)
    problem = _Problem(train, held)
    errors = {ridge: problem.error(ridge) for ridge in sorted(ridges, reverse=True)}
    ridge = min(errors, key=errors.__getitem__)
    weights = problem.weights(ridge)
    identity = torch.eye(train.width, dtype=torch.float64, device=weights.device)
    about_y = float((held.output_mean - train.output_mean).square().sum())
    about_u = float((held.update_mean - train.update_mean).square().sum())
    return Surrogate(
        matrix=identity + weights.T,
        input_mean=train.input_mean.clone(),
        output_mean=train.output_mean.clone(),
        ridge=ridge,
        r2=r_squared(errors[ridge], held.yy + held.count * about_y, held.raw),
        r2_update=r_squared(errors[ridge], held.uu + held.count * about_u, held.raw),
        tokens=train.count,
    )


def r_squared(sse: float, sst: float, raw: float) -> float:
    """1 - SSE / SST, with the module's rule where nothing varies.

    Args:
        sse: Sum of squared errors.
        sst: Sum of squares about the training mean.
        raw: Sum of squares of the states, which says what is rounding.
    """
    least = ROUNDING**2 * raw
    if sst > least:
        return 1 - sse / sst
    return 1.0 if sse <= least else 0.0


class _Problem:
    """The regression in the eigenvectors of the inputs' covariance."""

    def __init__(self, train: Moments, held: Moments) -> None:
        values, vectors = torch.linalg.eigh(train.xx / train.count)
        self.values, self.vectors, self.held = values.clamp(min=0), vectors, held
        length = float(train.input_mean.square().sum())
        eps = torch.finfo(torch.float64).eps
        least = max(ROUNDING**2 * length, float(values[-1]) * len(values) * eps)
        self.has_data = self.values > least
        adds = train.uu > ROUNDING**2 * train.raw
        self.scale = float(self.values.mean())
        self.products = vectors.T @ (train.xu / train.count) * float(adds)
        self.cross = (self.products * (vectors.T @ held.xu)).sum(1)
        self.squares = (self.products @ self.products.T) * (vectors.T @ held.xx @ vectors)
        self.dx = vectors.T @ (held.input_mean - train.input_mean)
        self.du = held.update_mean - train.update_mean

    def shrinkage(self, ridge: float) -> Tensor:
        """What each eigenvector's products are multiplied by [d]; 0 without data."""
        return torch.where(self.has_data, 1 / (self.values + ridge * self.scale), 0.0)

    def weights(self, ridge: float) -> Tensor:
        """(A - I)^T [d, d]."""
        return self.vectors @ (self.shrinkage(ridge)[:, None] * self.products)

    def error(self, ridge: float) -> float:
        """Held-out sum of squared errors."""
        by = self.shrinkage(ridge)
        missed = self.du - (by * self.dx) @ self.products
        within = self.held.uu - 2 * float(by @ self.cross) + float(by @ self.squares @ by)
        # A perfect fit leaves a difference of rounded numbers, of either sign.
        return max(0.0, within) + self.held.count * float(missed.square().sum())


def _check(train: Moments, held: Moments, ridges: Sequence[float]) -> None:
    if train.width != held.width:
        raise UsageError(f"training and held-out widths differ: {train.width} and {held.width}.")
    if train.count < 2 or held.count < 1:
        raise UsageError(
            "a surrogate needs 2 or more training tokens and a held-out one; got "
            f"{train.count} and {held.count}. Give more sequences."
        )
    if not ridges or not all(0 <= ridge < math.inf for ridge in ridges):
        raise UsageError(f"ridges are one or more finite numbers of 0 or more; got {list(ridges)}.")
