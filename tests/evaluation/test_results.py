import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shoal.evaluation.results import Metric, MetricName, differences, paired_difference


def metric(
    values: Any, weights: Any = None, name: MetricName = "accuracy", task: str = "arc_easy"
) -> Metric:
    x, w = np.asarray(values, float), np.ones(len(values)) if weights is None else weights
    mean = float(np.average(x, weights=w))
    return Metric(
        task=task,
        name=name,
        value=math.exp(mean) if name == "perplexity" else mean,
        stderr=None,
        examples=len(x),
        split="test",
        origin="somewhere",
        per_example=tuple(x),
        weights=None if weights is None else tuple(weights),
    )


numbers = st.floats(-3, 3)
pairs = st.lists(st.tuples(numbers, numbers, st.integers(1, 9)), min_size=2, max_size=30)


@given(pairs)
def test_accuracy_is_subtracted_and_perplexity_divided(
    rows: list[tuple[float, float, int]],
) -> None:
    before, after, weights = zip(*rows, strict=True)
    dense, pruned = metric(before), metric(after)
    plain = paired_difference(dense, pruned)
    assert not plain.ratio
    assert plain.value == pytest.approx(pruned.value - dense.value, abs=1e-9)
    dense, pruned = (metric(x, weights, "perplexity") for x in (before, after))
    ratio = paired_difference(dense, pruned)
    assert ratio.ratio
    assert ratio.value == pytest.approx(pruned.value / dense.value)


@given(pairs, st.integers(0, 9))
def test_intervals_are_ordered_reproducible_and_antisymmetric(
    rows: list[tuple[float, float, int]], seed: int
) -> None:
    before, after, weights = zip(*rows, strict=True)
    dense, pruned = metric(before, weights), metric(after, weights)
    one = paired_difference(dense, pruned, seed)
    assert one.low <= one.high
    assert one == paired_difference(dense, pruned, seed)
    back = paired_difference(pruned, dense, seed)
    assert (back.low, back.high) == pytest.approx((-one.high, -one.low), abs=1e-9)


@given(pairs)
def test_a_model_does_not_differ_from_itself(rows: list[tuple[float, float, int]]) -> None:
    values = [r[0] for r in rows]
    same = paired_difference(metric(values), metric(values))
    assert (same.value, same.low, same.high) == (0, 0, 0)
    same = paired_difference(metric(values, None, "perplexity"), metric(values, None, "perplexity"))
    assert (same.value, same.low, same.high) == (1, 1, 1)


def test_pairing_cancels_what_both_models_find_hard() -> None:
    rng = np.random.default_rng(0)
    hard = rng.normal(0, 10, 200)
    found = paired_difference(metric(hard), metric(hard + rng.normal(0.5, 0.1, 200)))
    assert 0.45 < found.low < 0.5 < found.high < 0.55


@pytest.mark.parametrize("name", ["margin", "perplexity"])
def test_the_interval_covers_the_truth_95_times_in_100(name: MetricName) -> None:
    rng = np.random.default_rng(1)
    truth = math.exp(0.3) if name == "perplexity" else 0.3
    covered = 0
    for trial in range(150):
        before, gap = rng.normal(size=60), rng.normal(0.3, 1, 60)
        found = paired_difference(
            metric(before, None, name), metric(before + gap, None, name), trial
        )
        covered += found.low <= truth <= found.high
    assert 0.88 <= covered / 150 <= 0.99


def test_one_example_or_broken_losses_have_no_interval() -> None:
    single = paired_difference(metric([1.0]), metric([3.0]))
    assert single.value == 2.0
    assert math.isnan(single.low)
    assert math.isnan(single.high)
    broken = paired_difference(metric([1.0, 2.0]), metric([1.0, math.nan]))
    assert math.isnan(broken.value)
    assert math.isnan(broken.low)


def test_differences_match_task_and_name() -> None:
    dense = [metric([1, 0]), metric([1, 1], task="piqa"), metric([0, 0], name="margin")]
    pruned = [metric([0, 1], name="margin"), metric([0, 0]), metric([1, 1], task="boolq")]
    found = differences(dense, pruned)
    assert [(d.task, d.name, d.value) for d in found] == [
        ("arc_easy", "accuracy", -0.5),
        ("arc_easy", "margin", 0.5),
    ]
    assert differences(dense, []) == differences([], pruned) == []


def test_metrics_are_frozen_and_survive_json() -> None:
    one = metric([1, 0, 1], [1, 2, 3], "perplexity")
    assert Metric.model_validate_json(one.model_dump_json()) == one
    with pytest.raises(ValidationError):
        Metric.model_validate(one.model_dump() | {"surprise": 1})
    with pytest.raises(ValidationError, match="frozen"):
        one.value = 0.0
