"""How much a block spreads states apart, and along how many directions.

    gain                 E |A (h_i - h_j)| / E |h_i - h_j|, over pairs of tokens
    effective rank       exp of the entropy of s / sum s           (Roy and Vetterli 2007)
    participation ratio  (sum s^2)^2 / sum s^4

of singular values s: those of A - I, or those of (A - I) h over the data, which leave out the
directions that no state has. Both ranks lie between 1 and d; they are d if all s are equal and 1 if
one alone is not zero. They are 0 where all s are: a block that adds nothing has no direction.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from shoal.core.errors import NotFiniteError, UsageError
from shoal.geometry.moments import Moments

_EPS = torch.finfo(torch.float64).eps


@dataclass(frozen=True)
class Spread:
    """Ranks of a spectrum."""

    effective_rank: float
    participation_ratio: float


def mean_distance(states: Tensor) -> float:
    """Mean of |h_i - h_j| over pairs of rows of [n, d], in float64.

    Raises:
        UsageError: If there is no pair.
    """
    if states.ndim != 2 or len(states) < 2:
        raise UsageError(
            f"distances need a table [n, d] of 2 or more states; got {list(states.shape)}."
        )
    return float(torch.pdist(states.double()).mean())


def measured_gain(inputs: Tensor, outputs: Tensor) -> float:
    """E |y_i - y_j| / E |x_i - x_j|: how a block itself spreads tokens, without a surrogate.

    Args:
        inputs: What enters [n, d].
        outputs: What leaves, of the same tokens [n, d].

    Returns:
        The gain; NaN where all inputs are the same, since nothing is there to be spread.

    Raises:
        UsageError: If the tables are not of the same tokens, or hold fewer than two.
    """
    if inputs.shape != outputs.shape:
        raise UsageError(
            f"a gain compares the same tokens; got {list(inputs.shape)} and {list(outputs.shape)}."
        )
    before, after = mean_distance(inputs), mean_distance(outputs)
    return after / before if before else math.nan


def data_gain(matrix: Tensor, inputs: Tensor) -> float:
    """The same of h -> matrix h [d, d] over the tokens [n, d]."""
    # Centred, so that rounding is that of what varies.
    centred = inputs.double() - inputs.double().mean(0)
    return measured_gain(centred, centred @ matrix.double().T)


def sigma_max(matrix: Tensor) -> float:
    """The largest singular value: the gain of the direction that is spread most."""
    return float(torch.linalg.matrix_norm(matrix.double(), 2))


def mean_gain(matrix: Tensor) -> float:
    """Frobenius norm over the root of the width: root mean square gain over all directions."""
    return float(torch.linalg.matrix_norm(matrix.double())) / math.sqrt(len(matrix))


def effective_rank(values: Tensor) -> float:
    """Exponential of the entropy of s / sum s for singular values s [k]; 0 where all are 0.

    Raises:
        UsageError: If a value is negative.
        NotFiniteError: If one is not finite.
    """
    _check(values)
    total = values.double().sum()
    if not total:
        return 0.0
    return float(torch.special.entr(values.double() / total).sum().exp())


def participation_ratio(values: Tensor) -> float:
    """(sum s^2)^2 / sum s^4 for singular values s [k]; 0 where all are 0.

    Raises:
        UsageError: If a value is negative.
        NotFiniteError: If one is not finite.
    """
    _check(values)
    if not values.any():
        return 0.0
    # Over the largest, whose fourth power could overflow.
    squares = (values.double() / values.double().max()).square()
    return float(squares.sum().square() / squares.square().sum())


def spread(values: Tensor) -> Spread:
    """Both ranks of singular values [k]."""
    return Spread(effective_rank(values), participation_ratio(values))


def update_values(matrix: Tensor) -> Tensor:
    """Singular values of A - I [d], largest first; those within rounding of 0 are 0."""
    values = torch.linalg.svdvals(_update(matrix))
    # Rounding is that of A and not of A - I, which may be far smaller than I.
    size = max(1.0, float(values[0]))
    return torch.where(values > size * len(values) * _EPS, values, 0.0)


def data_values(matrix: Tensor, moments: Moments) -> Tensor:
    """Root mean square length of (A - I) h along its principal directions [d], largest first.

    Square roots of the eigenvalues of (A - I) C (A - I)^T, C the covariance of the states; those
    within rounding of 0 are 0.

    Args:
        matrix: A [d, d].
        moments: Of the tokens that the update is taken over.

    Raises:
        UsageError: If there is no token.
    """
    if not moments.count:
        raise UsageError("no token was counted; add some before asking for a spectrum.")
    update = _update(matrix).to(moments.xx.device)
    covariance = update @ (moments.xx / moments.count) @ update.T
    values = torch.linalg.eigvalsh((covariance + covariance.T) / 2).flip(0)
    return torch.where(values > values[0] * len(values) * _EPS, values, 0.0).sqrt()


def _update(matrix: Tensor) -> Tensor:
    double = matrix.double()
    return double - torch.eye(len(double), dtype=torch.float64, device=double.device)


def _check(values: Tensor) -> None:
    if not values.isfinite().all():
        raise NotFiniteError(
            "a spectrum has values that are not finite; look for NaN in the states."
        )
    if values.ndim != 1 or not len(values) or values.min() < 0:
        raise UsageError(
            f"singular values are a row of numbers of 0 or more; got {list(values.shape)} values"
            f"{f' from {float(values.min()):.3g}' if values.numel() else ''}."
        )
