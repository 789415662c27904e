import math

import pytest

from shoal.core.mask import Mask
from shoal.geometry.records import Linear
from shoal.geometry.signatures import signatures


def _linear(layer, distribution, gain, rank, accepted=True, positions="all"):
    return Linear(
        layer=layer,
        positions=positions,
        distribution=distribution,
        tokens=100,
        ridge=0.0,
        r2=0.95 if accepted else 0.5,
        r2_update=0.5,
        accepted=accepted,
        measured_gain=gain,
        data_gain=1.0,
        sigma_max=1.0,
        frobenius=1.0,
        effective_rank=1.0,
        participation_ratio=1.0,
        data_effective_rank=rank,
        data_participation_ratio=1.0,
    )


def test_an_amplifier_gains_more_and_adds_along_fewer_directions():
    linear = [
        *[_linear(i, "id", 1.0, 8.0) for i in range(4)],
        _linear(0, "ood", 2.0, 4.0),
        _linear(1, "ood", 2.0, 9.0),
        _linear(2, "ood", 0.5, 4.0),
        _linear(3, "ood", 2.0, 4.0, accepted=False),
    ]
    found = signatures(linear, Mask.parse("-[0,2.attn]", 4))
    assert [s.amplifier for s in found] == [True, False, False, None]
    assert [s.selected for s in found] == [True, False, True, False]
    assert found[0].gain_change == pytest.approx(math.log(2))
    assert found[0].rank_change == pytest.approx(math.log(0.5))


def test_a_surrogate_rejected_on_the_adapted_task_leaves_it_open_too():
    linear = [_linear(0, "id", 1.0, 8.0, accepted=False), _linear(0, "ood", 2.0, 4.0)]
    assert signatures(linear, None)[0].amplifier is None


def test_classes_are_compared_apart_and_what_has_no_counterpart_is_left_out():
    linear = [
        _linear(0, "ood", 2.0, 4.0, positions="y"),
        _linear(0, "id", 1.0, 8.0, positions="y"),
        _linear(0, "ood", 4.0, 4.0, positions="x"),
        _linear(0, "id", 1.0, 8.0, positions="x"),
        _linear(1, "ood", 4.0, 4.0),
        _linear(2, "id", 4.0, 4.0),
    ]
    found = signatures(linear, None)
    assert [(s.layer, s.positions) for s in found] == [(0, "x"), (0, "y")]
    assert found[0].gain_change == pytest.approx(math.log(4))
    assert not any(s.selected for s in found)


def test_a_block_that_adds_nothing_is_no_amplifier():
    linear = [_linear(0, "id", 1.0, 0.0), _linear(0, "ood", 1.0, 3.0)]
    (found,) = signatures(linear, None)
    assert math.isnan(found.rank_change)
    assert found.amplifier is False
