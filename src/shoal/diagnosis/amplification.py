"""Where softmax amplifies a change of logits, and where it does not.

For a small isotropic change the factor (1 - cos p) / (1 - cos z) is on average
mean(z^2) / T^2 (1 - sum r^2): above 1 only where logits are larger than T. Single factors scatter
widely about it, since r lies on a few tokens; so do medians.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from shoal.core.means import means
from shoal.diagnosis.passages import Along, Table
from shoal.diagnosis.quantities import QUANTITIES
from shoal.diagnosis.records import Amplification

Values = NDArray[np.float64]


def amplify(along: Along, seed: int = 0) -> tuple[Amplification, ...]:
    """Sum up a comparison at several temperatures.

    Args:
        along: The comparison; its `temperatures` are read.
        seed: Seed of the bootstrap.

    Returns:
        One result per temperature. What is measured is known only where logits changed; what is
        predicted, everywhere.
    """
    return tuple(_at(t, tables, seed) for t, tables in along.temperatures.items() if tables)


def _at(temperature: float, tables: dict[str, Table], seed: int) -> Amplification:
    measured, predicted = tables["amplification"], tables["amplification_predicted"]
    changed = ~np.isnan(measured)
    # A mean of factors would be that of the few largest, which the medians leave out.
    shown = {
        name: table
        for name, table in tables.items()
        if name == "logit_gap"
        or (QUANTITIES[name].space == "probability" and name != "amplification")
    }
    averages = means(shown, seed)
    logits = averages["logit_gap"].value if "logit_gap" in averages else 0.0
    known = measured[changed]
    expected = predicted[~np.isnan(predicted)]
    return Amplification(
        temperature=temperature,
        ratio=averages["probability_gap"].value / logits if logits > 0 else None,
        measured=_median(known),
        predicted=_median(expected),
        amplified=_share(known),
        predicted_amplified=_share(expected),
        rank_correlation=_rank_correlation(known, predicted[changed]),
        means=averages,
    )


def _median(values: Values) -> float | None:
    return float(np.median(values)) if len(values) else None


def _share(values: Values) -> float | None:
    """How many are above 1, of all."""
    return float((values > 1).mean()) if len(values) else None


def _rank_correlation(measured: Values, predicted: Values) -> float | None:
    """Spearman correlation; None where one of the two does not vary."""
    if len(measured) < 3 or np.ptp(measured) == 0 or np.ptp(predicted) == 0:
        return None
    return float(spearmanr(measured, predicted).statistic)
