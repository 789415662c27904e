"""Whether the check tells rescaling from removing."""

import numpy as np
import pytest

from shoal.config.shifts import ShiftSettings
from shoal.core.mask import Mask
from shoal.lab.saturation import fitted, saturation
from shoal.lab.tasks import tasks_of
from shoal.testing.planted import amplified, clipped, planted, plus, times

SETTINGS = ShiftSettings(selection=40, test=200)


def checked(checkpoint, removed, sigma=4.0):
    task = tasks_of(checkpoint, [sigma], SETTINGS)[1]
    return task, saturation(task, Mask.of(checkpoint.model.depth, removed))


def by_form(found):
    return {(r.model, r.form): r for r in found.rescaled}


def test_rescaling_explains_what_rescaling_does():
    """A block that doubles everything: one factor gains all that its removal gains."""
    task, found = checked(planted(times(2.0), times(1.0)), [0])
    rescaled = by_form(found)
    assert rescaled["dense", "scale"].factor == pytest.approx(0.5, rel=1e-5)
    assert rescaled["dense", "scale"].test.gain.value == pytest.approx(1, abs=1e-6)
    assert rescaled["best", "scale"].factor == pytest.approx(1, rel=1e-5)
    losses = task.test.losses(Mask.of(2, [0]))
    assert found.best_beyond_scale.difference.value == pytest.approx(0, abs=1e-6)
    assert found.best_beyond_scale.loss.value == pytest.approx(losses.mean())


def test_rescaling_does_not_explain_an_amplifier():
    _, found = checked(planted(times(1.0), amplified), [1])
    rescaled = by_form(found)
    assert 0 < rescaled["dense", "scale"].test.gain.value < 0.99
    assert 1 / 3 < rescaled["dense", "scale"].factor < 0.5
    assert found.best_beyond_scale.gain.low > 0.9
    assert found.scaled_beyond_scale.gain.low > 0.9


def test_an_offset_is_found_by_the_affine_form_alone():
    _, found = checked(planted(times(1.0), plus(3.0)), [])
    rescaled = by_form(found)
    assert rescaled["dense", "affine"].factor == pytest.approx(1, rel=1e-4)
    assert rescaled["dense", "affine"].offset == pytest.approx(-3, rel=1e-4)
    assert rescaled["dense", "affine"].test.gain.value == pytest.approx(1, abs=1e-6)
    assert rescaled["dense", "scale"].offset == 0
    assert rescaled["dense", "scale"].test.gain.value < 0.8


def test_factors_are_fitted_where_masks_are_chosen():
    """They are the least squares of the selection functions, and do not see the test ones."""
    task = tasks_of(planted(amplified, times(1.0)), [4.0], SETTINGS)[1]
    dense = Mask.dense(2)
    factor, offset = fitted(task, dense, offset=True)
    p, y = (v[:, 2:].ravel() for v in (task.selection.predictions(dense), task.selection.values))
    expected = np.polyfit(p, y, 1)
    assert (factor, offset) == pytest.approx(tuple(expected), rel=1e-9)
    factor, offset = fitted(task, dense, offset=False)
    assert (factor, offset) == (pytest.approx((p @ y) / (p @ p), rel=1e-12), 0)
    p, y = (v[:, 2:].ravel() for v in (task.test.predictions(dense), task.test.values))
    assert factor != pytest.approx((p @ y) / (p @ p), rel=1e-6)


def test_a_plateau_shows():
    """Predictions cut off at what training could show, beside ones that are not."""
    task, found = checked(planted(times(1.0), clipped), [1])
    assert found.bound == 2
    y = task.test.values[:, 2:]
    assert found.largest_y == np.abs(y).max()
    dense, best = found.ranges["dense"], found.ranges["best"]
    assert dense.largest == 2
    outside = (np.abs(y) > 2).mean()
    assert outside > 0.2
    assert dense.near_bound >= outside - 0.01
    assert dense.near_bound == dense.near_largest
    assert dense.beyond_bound == 0
    assert best.largest == pytest.approx(found.largest_y, rel=1e-3)
    assert best.near_largest < 0.02
    assert best.near_bound < 0.05
    assert best.beyond_bound == pytest.approx((np.abs(y) > 2.04).mean(), abs=1e-3)


def test_the_gain_of_a_plateau_is_outside():
    task, found = checked(planted(times(1.0), clipped), [1])
    inside, outside = found.splits
    assert (inside.where, outside.where) == ("inside", "outside")
    assert inside.share + outside.share == pytest.approx(1)
    assert outside.share == (np.abs(task.test.values[:, 2:]) > 2).mean()
    assert inside.dense.value < 1e-6
    assert outside.dense.value > 0.1
    assert outside.best.gain.value == pytest.approx(1, abs=1e-6)


def test_parts_add_up_to_the_loss():
    task, found = checked(planted(times(0.7), amplified, times(1.2)), [0])
    dense, best = (task.test.losses(m).mean() for m in (Mask.dense(3), Mask.of(3, [0])))
    assert sum(s.dense.value for s in found.splits) == pytest.approx(dense)
    assert sum(s.best.loss.value for s in found.splits) == pytest.approx(best)
    assert sum(s.best.difference.value for s in found.splits) == pytest.approx(best - dense)


def test_the_dense_mask_gains_nothing():
    _, found = checked(planted(amplified, times(1.0)), [])
    assert found.ranges["dense"] == found.ranges["best"]
    assert found.scaled_beyond_scale.gain.value == 0
    assert found.best_beyond_scale.gain.value < 0
    assert all(split.best.gain.value == 0 for split in found.splits)


def test_without_a_bound_there_is_nothing_to_split_at():
    checkpoint = planted(times(2.0), times(1.0))
    config = checkpoint.config.model_validate(
        {**checkpoint.config.model_dump(), "coefficients": "N(0,1)"}
    )
    found = checked(type(checkpoint)("g", config, checkpoint.model, ""), [0])[1]
    assert found.bound is None
    assert found.splits == ()
    assert found.ranges["dense"].near_bound is None
    assert by_form(found)["dense", "scale"].factor == pytest.approx(0.5, rel=1e-5)
