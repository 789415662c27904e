"""Means over prompts with 95% bootstrap intervals.

The positions of one prompt are not independent, so a prompt is averaged first and prompts are what
is resampled.
"""

import warnings
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shoal.core.records import Curve, Mean

RESAMPLES = 2000

FEW = 256
"""Prompts up to which the drawn places of all resamples are kept, for the other quantities."""

Values = NDArray[np.float64]


def mean_of(values: Values, seed: int = 0) -> Mean | None:
    """Mean of one value per prompt; prompts without a value (NaN) are left out.

    Returns:
        The mean with its percentile bootstrap interval, which is open (None) for a single prompt;
        None where no prompt has a value.
    """
    known = values[~np.isnan(values)]
    if not len(known):
        return None
    value = float(known.mean())
    if len(known) < 2:
        return Mean(value=value, low=None, high=None, count=len(known))
    draws = np.sort(_resampled(known, seed))
    # Order statistics, since between infinite values there is nothing to interpolate.
    low, high = (float(draws[i]) for i in (RESAMPLES // 40, RESAMPLES - 1 - RESAMPLES // 40))
    return Mean(value=value, low=low, high=high, count=len(known))


def _resampled(known: Values, seed: int) -> Values:
    """Means of resamples [RESAMPLES]."""
    if len(known) <= FEW:
        found: Values = known[_resamples(len(known), seed)].mean(1)
        return found
    rng = np.random.default_rng(seed)
    draw = (rng.integers(0, len(known), len(known)) for _ in range(RESAMPLES))
    return np.array([known[places].mean() for places in draw])


@lru_cache(maxsize=16)
def _resamples(count: int, seed: int) -> NDArray[np.int64]:
    """Which values each resample holds [RESAMPLES, count]; one drawing serves all quantities."""
    return np.random.default_rng(seed).integers(0, count, (RESAMPLES, count))


def known_mean(values: Values, seed: int = 0) -> Mean:
    """`mean_of` where some prompt must have a value.

    Raises:
        ValueError: If none has.
    """
    mean = mean_of(values, seed)
    if mean is None:
        raise ValueError("there is nothing to average over")
    return mean


def mean_by_prompt(table: NDArray[np.float64]) -> Values:
    """Mean of each row [P, S] -> [P]; NaN for rows without a value."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Mean of empty slice", RuntimeWarning)
        found: Values = np.nanmean(table, axis=1) if table.size else np.full(len(table), np.nan)
    return found


def means(tables: Mapping[str, NDArray[np.float64]], seed: int = 0) -> dict[str, Mean]:
    """Means of tables [P, S] by name; quantities without any value are left out."""
    found = {name: mean_of(mean_by_prompt(table), seed) for name, table in tables.items()}
    return {name: mean for name, mean in found.items() if mean is not None}


def curve(table: NDArray[np.float64], seed: int = 0) -> Curve:
    """Mean at each step over the prompts that have one there [P, S]."""
    found = [mean_of(column, seed) for column in table.T]
    known = [(i, m) for i, m in enumerate(found) if m is not None]
    return Curve(
        steps=tuple(i + 1 for i, _ in known),
        value=tuple(m.value for _, m in known),
        low=tuple(m.low for _, m in known),
        high=tuple(m.high for _, m in known),
        count=tuple(m.count for _, m in known),
    )


def curves(tables: Mapping[str, NDArray[np.float64]], seed: int = 0) -> dict[str, Curve]:
    """Curves of tables [P, S] by name."""
    return {name: curve(table, seed) for name, table in tables.items()}
