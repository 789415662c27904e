"""Losses of the same functions under two models, compared with 95% bootstrap intervals.

The same resamples of functions serve both, so that a difference or a ratio has the interval of a
paired comparison, and columns of one table can be compared.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shoal.core.means import RESAMPLES
from shoal.core.records import Curve, Mean
from shoal.lab.records import Compared

Values = NDArray[np.float64]


def compared(losses: Values, base: Values, seed: int = 0) -> Compared:
    """The mean loss, its difference from a base, and the share of the base that is gained.

    Args:
        losses: One loss per function [B].
        base: Losses of the same functions under what they are compared with [B].
        seed: Of the resamples.
    """
    both = np.stack([losses, base], axis=1)
    mean, drawn = both.mean(0), _resampled(both, seed)
    count = len(losses)
    return Compared(
        loss=_mean(mean[0], drawn[:, 0], count),
        difference=_mean(mean[0] - mean[1], drawn[:, 0] - drawn[:, 1], count),
        gain=_mean(_gain(*mean[None].T)[0], _gain(drawn[:, 0], drawn[:, 1]), count),
    )


def mean_loss(losses: Values, seed: int = 0) -> Mean:
    """The mean of one loss per function [B]."""
    return _mean(losses.mean(), _resampled(losses[:, None], seed)[:, 0], len(losses))


def point_curve(errors: Values, seed: int = 0) -> Curve:
    """Mean error at each point [B, n]; step i + 1 is predicted from i points."""
    drawn = _resampled(errors, seed)
    found = [_mean(errors[:, i].mean(), drawn[:, i], len(errors)) for i in range(errors.shape[1])]
    return Curve(
        steps=tuple(range(1, len(found) + 1)),
        value=tuple(m.value for m in found),
        low=tuple(m.low for m in found),
        high=tuple(m.high for m in found),
        count=tuple(m.count for m in found),
    )


def _gain(losses: Values, base: Values) -> Values:
    """1 - losses / base; 0 where both are 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Values = np.where(losses == base, 0.0, 1 - losses / base)
    return found


def _resampled(table: Values, seed: int) -> Values:
    """Means of resampled rows [RESAMPLES, K] of a table [B, K]."""
    # A weight of 0 times infinity is no number, as is any mean with one in it.
    with np.errstate(invalid="ignore"):
        found: Values = _weights(len(table), seed) @ table
    return found


@lru_cache(maxsize=4)
def _weights(count: int, seed: int) -> Values:
    """How often each resample holds each row, over their number [RESAMPLES, count]."""
    rng = np.random.default_rng(seed)
    found: Values = rng.multinomial(count, np.full(count, 1 / count), RESAMPLES) / count
    return found


def _mean(value: float, drawn: Values, count: int) -> Mean:
    """A mean with the percentiles of its resamples; open for a single row or what is no number."""
    if count < 2 or not np.isfinite(drawn).all():
        return Mean(value=float(value), low=None, high=None, count=count)
    ordered = np.sort(drawn)
    low, high = ordered[RESAMPLES // 40], ordered[RESAMPLES - 1 - RESAMPLES // 40]
    return Mean(value=float(value), low=float(low), high=float(high), count=count)
