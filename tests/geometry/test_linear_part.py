import numpy as np
import pytest
import torch

from shoal.core.mask import Mask
from shoal.geometry.linear_part import linear_part
from shoal.geometry.signatures import signatures
from shoal.testing.linear_stacks import (
    amplifier_update,
    linear_side,
    linear_stack,
    plain_update,
)

AMPLIFIER = 2


@pytest.fixture(scope="module")
def stack():
    return linear_stack(
        amplifier_update(i) if i == AMPLIFIER else plain_update(i) for i in range(5)
    )


@pytest.fixture(scope="module")
def sides(stack):
    return linear_side(stack, "id", 0.01), linear_side(stack, "ood", 2.0, seed=1)


@pytest.fixture(scope="module")
def linear(stack, sides):
    return linear_part(stack, *sides)


def test_linear_blocks_are_found_as_they_are(stack, linear):
    assert [(one.distribution, one.layer) for one in linear] == [
        (name, layer) for name in ("id", "ood") for layer in range(5)
    ]
    for one in linear:
        assert one.accepted
        assert one.r2 > 0.9999
        matrix = torch.eye(9) + stack.blocks.layers[one.layer].update
        if one.distribution == "ood":
            # Only the shifted task shows what the amplifier does to the planted direction.
            assert one.sigma_max == pytest.approx(float(torch.linalg.svdvals(matrix)[0]), rel=1e-3)
        if one.layer != AMPLIFIER and one.distribution == "id":
            assert one.measured_gain == pytest.approx(np.sqrt(1 + 0.2**2), rel=1e-3)


def test_the_planted_amplifier_is_found_and_no_other_block(linear):
    found = signatures(linear, Mask.of(5, [AMPLIFIER]))
    assert [one.layer for one in found if one.amplifier] == [AMPLIFIER]
    assert [one.layer for one in found if one.selected] == [AMPLIFIER]
    assert found[AMPLIFIER].gain_change > 0.2
    assert found[AMPLIFIER].rank_change < -0.2


def test_a_high_threshold_leaves_it_open(stack, sides):
    linear = linear_part(stack, *sides, threshold=1.5)
    assert not any(one.accepted for one in linear)
    assert all(one.amplifier is None for one in signatures(linear, None))


def test_a_few_blocks_at_a_time_give_the_same_and_so_does_the_same_seed(stack, sides, linear):
    assert linear_part(stack, *sides) == linear
    parts = [
        one for layers in ([0, 1], [2, 3, 4]) for one in linear_part(stack, *sides, layers=layers)
    ]
    assert sorted(parts, key=lambda one: (one.distribution, one.layer)) == list(linear)


def test_classes_get_a_surrogate_each(stack, sides):
    classes = {"x": slice(0, None, 2), "y": slice(1, None, 2)}
    found = linear_part(stack, *sides, classes=classes, layers=[1])
    assert [(one.distribution, one.positions) for one in found] == [
        ("id", "x"),
        ("id", "y"),
        ("ood", "x"),
        ("ood", "y"),
    ]
    whole = linear_part(stack, *sides, layers=[1])
    assert found[0].tokens + found[1].tokens == whole[0].tokens
