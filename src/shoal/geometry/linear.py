"""One block on one distribution: its surrogate, and what the surrogate says of the block."""

from collections.abc import Sequence

from shoal.geometry.moments import Moments
from shoal.geometry.records import Distribution, Linear
from shoal.geometry.spectra import (
    data_gain,
    data_values,
    mean_gain,
    measured_gain,
    sigma_max,
    spread,
    update_values,
)
from shoal.geometry.surrogates import RIDGES, Surrogate, fit

THRESHOLD = 0.9
"""Held-out R^2 from which a surrogate is taken to stand for its block."""


def linear_record(
    train: Moments,
    held: Moments,
    layer: int,
    positions: str,
    distribution: Distribution,
    ridges: Sequence[float] = RIDGES,
    threshold: float = THRESHOLD,
) -> tuple[Surrogate, Linear]:
    """Fit a block's surrogate and describe it.

    Gains are taken over the held-out tokens that were kept; the update's spectrum on the data over
    the training tokens, which are more: few tokens have few directions.

    Args:
        train: The block's tokens of the fit.
        held: Its tokens of other sequences, two or more.
        layer: The block's index.
        positions: The class of positions, e.g. all.
        distribution: Which task the tokens are of.
        ridges: To choose from, relative to the mean eigenvalue of the inputs' covariance.
        threshold: R^2 from which the surrogate is accepted.

    Raises:
        UsageError: If there are too few tokens or a ridge is negative.
    """
    surrogate = fit(train, held, ridges)
    inputs, outputs = held.sample
    update = spread(update_values(surrogate.matrix))
    on_data = spread(data_values(surrogate.matrix, train))
    return surrogate, Linear(
        layer=layer,
        positions=positions,
        distribution=distribution,
        tokens=surrogate.tokens,
        ridge=surrogate.ridge,
        r2=surrogate.r2,
        r2_update=surrogate.r2_update,
        accepted=surrogate.r2 >= threshold,
        measured_gain=measured_gain(inputs, outputs),
        data_gain=data_gain(surrogate.matrix, inputs),
        sigma_max=sigma_max(surrogate.matrix),
        frobenius=mean_gain(surrogate.matrix),
        effective_rank=update.effective_rank,
        participation_ratio=update.participation_ratio,
        data_effective_rank=on_data.effective_rank,
        data_participation_ratio=on_data.participation_ratio,
    )
