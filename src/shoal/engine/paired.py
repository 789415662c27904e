"""The test that drops a candidate from a race."""

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]


def t_statistics(differences: Array, weights: Array, total: int) -> Array:
    """How clearly the mean of a finite population lies above zero, judged from a sample.

    The numerator is the weighted mean, the denominator its standard error as in
    `shoal.core.evaluation.Evaluation` with the finite-population correction. One pseudo-observation
    is added that speaks against a difference: as far below the mean as the farthest example lies
    from it on either side, and no higher than zero. It fades with the size of the sample. It keeps
    a few equal differences, as 0/1 losses have them, from looking certain, and it stands for the
    rare example far below that a skewed sample may have missed.

    Args:
        differences: Differences of some pairs on the sampled examples [..., n].
        weights: Weights of the examples [n].
        total: Size of the population.

    Returns:
        One statistic per pair [...].
    """
    n = len(weights)
    centre = np.average(differences, axis=-1, weights=weights)[..., None]
    farthest = np.abs(differences - centre).max(-1, keepdims=True)
    x = np.concatenate([differences, np.minimum(0, centre - farthest)], -1)
    w = np.append(weights, weights.mean())
    mean = (w * x).sum(-1) / w.sum()
    influence = w * (x - mean[..., None]) / w.mean()
    stderr = np.sqrt((influence**2).sum(-1) / n / (n + 1) * (1 - n / total))
    return np.divide(mean, stderr, out=np.zeros_like(mean), where=stderr > 0)


def critical(n: int, level: float) -> float:
    """The quantile of Student's t that a mean of `n` differences exceeds with chance `level`."""
    return float(stats.t.isf(level, n - 1))
