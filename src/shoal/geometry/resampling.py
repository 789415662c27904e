"""How an alignment gap changes, with a paired bootstrap interval over sequences.

A resample of n sequences is the number of times that each is in it, w with sum n, so that profiles
of all resamples at once are matrix products:

    mean over sequences            w x / n
    mean over pairs of sequences   w' D w / ((sum w)^2 - sum w^2)      D_ii = 0

A sequence is never paired with itself, also not with its copies in the resample. A number that is
infinite makes every resample infinite that holds it.
"""

import numpy as np
from numpy.typing import NDArray

from shoal.core.records import Mean

RESAMPLES = 1000

Values = NDArray[np.float64]


def draws(count: int, seed: int | list[int], resamples: int = RESAMPLES) -> Values:
    """How often each of `count` sequences is in each resample [R, count]; rows sum to `count`."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(count, np.full(count, 1 / count), resamples).astype(np.float64)


def resampled(table: Values, weights: Values) -> Values:
    """Means over the sequences of resamples.

    Args:
        table: A number per sequence and depth [S, D]; NaN where a sequence has none.
        weights: Resamples [R, S].

    Returns:
        Means [R, D]; NaN where no sequence of a resample has a number.
    """
    known = ~np.isnan(table)
    found = _quotient(weights @ np.where(np.isfinite(table), table, 0.0), weights @ known)
    return np.where(weights @ np.isinf(table) > 0, np.inf, found)


def resampled_pairs(distances: Values, weights: Values) -> Values:
    """Means over the pairs of different sequences in resamples.

    Args:
        distances: Of each two sequences [S, S], symmetric.
        weights: Resamples [R, S].

    Returns:
        Means [R]; NaN for a resample of a single sequence.
    """
    apart = distances.copy()
    np.fill_diagonal(apart, 0.0)

    def total(values: Values) -> Values:
        found: Values = ((weights @ values) * weights).sum(1)
        return found

    sums = total(np.where(np.isinf(apart), 0.0, apart))
    found = _quotient(sums, weights.sum(1) ** 2 - (weights**2).sum(1))
    infinite = np.isinf(apart)
    return np.where(total(infinite.astype(float)) > 0, np.inf, found) if infinite.any() else found


def interval(value: float, drawn: Values, count: int) -> Mean:
    """A value with the percentile interval of its resamples [R].

    Resamples without a value (NaN: a single sequence has no pairs) are left out.

    Args:
        value: Of all sequences.
        drawn: Of the resamples.
        count: Sequences.
    """
    known = np.sort(drawn[~np.isnan(drawn)])
    if count < 2 or not len(known):
        return Mean(value=value, low=None, high=None, count=count)
    # Order statistics, since between infinite values there is nothing to interpolate.
    low = known[len(known) // 40]
    high = known[len(known) - 1 - len(known) // 40]
    return Mean(value=value, low=float(low), high=float(high), count=count)


def _quotient(sums: Values, counts: Values) -> Values:
    found: Values = np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
    return found
