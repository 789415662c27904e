"""Typed results of an evaluation and the paired comparison of two of them."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

MetricName = Literal["perplexity", "accuracy", "accuracy_norm", "margin", "exact_match"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Metric(_Record):
    """One number about one model on one task.

    Attributes:
        task: Task name or file.
        name: What was measured.
        value: The number.
        stderr: Its standard error over examples; None with a single example.
        examples: Number of examples.
        per_example: The examples' values, for paired comparison: NLL per token, or 0 and 1.
        weights: Weights of the examples, where they are not equal.
    """

    task: str
    name: MetricName
    value: float
    stderr: float | None
    examples: int
    split: str
    origin: str
    per_example: tuple[float, ...]
    weights: tuple[float, ...] | None = None


class Difference(_Record):
    """How a pruned model differs from the dense one on the same examples.

    Attributes:
        value: Pruned minus dense; for perplexity the ratio of the two.
        low: Lower end of the 95% bootstrap interval.
        high: Upper end.
    """

    task: str
    name: MetricName
    value: float
    low: float
    high: float
    ratio: bool


RESAMPLES = 2000


def paired_difference(dense: Metric, pruned: Metric, seed: int = 0) -> Difference:
    """Difference of two models on the same examples, with a percentile bootstrap interval.

    Examples are resampled in pairs, so what makes an example hard for both models cancels.

    Args:
        dense: The dense model's metric.
        pruned: The pruned model's, on the same examples in the same order.
        seed: Seed of the bootstrap.
    """
    before, after = np.asarray(dense.per_example), np.asarray(pruned.per_example)
    weights = np.ones_like(before) if dense.weights is None else np.asarray(dense.weights)
    ratio = dense.name == "perplexity"

    def statistic(picked: np.ndarray) -> np.ndarray:
        w = weights[picked]
        gap = (w * (after - before)[picked]).sum(-1) / w.sum(-1)
        return np.exp(gap) if ratio else gap

    everything = np.arange(len(before))
    value = float(statistic(everything[None])[0])
    if len(before) < 2 or not math.isfinite(value):
        low = high = math.nan
    else:
        rng = np.random.default_rng(seed)
        draws = statistic(rng.integers(0, len(before), (RESAMPLES, len(before))))
        low, high = np.quantile(draws, [0.025, 0.975]).tolist()
    return Difference(
        task=dense.task, name=dense.name, value=value, low=low, high=high, ratio=ratio
    )


def differences(
    dense: Sequence[Metric], pruned: Sequence[Metric], seed: int = 0
) -> list[Difference]:
    """Paired differences of all metrics that both models have."""
    by_name = {(m.task, m.name): m for m in pruned}
    return [
        paired_difference(m, by_name[m.task, m.name], seed)
        for m in dense
        if (m.task, m.name) in by_name
    ]
