"""Tasks: families, names, and functions that nothing else has seen."""

import numpy as np
import pytest

from shoal.config.lab import Distribution, FamilyConfig
from shoal.config.shifts import ShiftSettings
from shoal.core.errors import UsageError
from shoal.lab.checkpoint import LabCheckpoint
from shoal.lab.tasks import shifted, tasks_of
from shoal.lab.train import Training
from shoal.testing.planted import planted, times

SETTINGS = ShiftSettings(selection=30, test=50)


def drawn(task):
    return [e.prompts.coefficients for e in (task.selection, task.test)]


def test_no_function_is_in_two_draws(monkeypatch):
    """Neither of another stream, task or seed, nor of training."""
    seen = []
    draw = Training._prompts

    def noted(self, *args):
        found = draw(self, *args)
        seen.append(found.coefficients)
        return found

    monkeypatch.setattr(Training, "_prompts", noted)
    checkpoint = planted(times(1.0))
    config = checkpoint.config.model_copy(update={"width": 4, "heads": 1, "steps": 3})
    list(Training(config, "cpu").run(3))
    assert len(seen) == 4
    for task in tasks_of(checkpoint, [0.5, 2.0], SETTINGS):
        seen += drawn(task)
    seen += drawn(tasks_of(planted(times(1.0), seed=1), [], SETTINGS)[0])
    # Families that differ in range alone would give the same functions up to scale.
    shapes = np.concatenate([c[:, 0] / c[:, 1] for c in seen])
    assert len(np.unique(shapes)) == len(shapes)


def test_tasks_are_those_of_training_and_of_each_sigma():
    tasks = tasks_of(planted(times(1.0)), [3.0, 1.0, 3.0, 0.5], SETTINGS)
    assert [t.name for t in tasks] == ["U(-1,1)", "U(-3,3)", "U(-0.5,0.5)"]
    assert [t.sigma for t in tasks] == [1, 3, 0.5]
    assert [t.in_distribution for t in tasks] == [True, False, False]
    for task in tasks:
        selection, test = drawn(task)
        assert (len(selection), len(test)) == (30, 50)
        largest = max(c.abs().max().item() for c in (selection, test))
        assert 0.9 * task.sigma < largest <= task.sigma
        assert task.test.prompts.x.abs().max() <= 1
        assert task.test.prompts.points == 8


def test_functions_follow_from_the_seed():
    one, same = (drawn(tasks_of(planted(times(1.0)), [2.0], SETTINGS)[1]) for _ in range(2))
    assert all((a == b).all() for a, b in zip(one, same, strict=True))


def test_more_functions_begin_with_the_fewer():
    more = ShiftSettings(selection=60, test=90)
    few, many = (drawn(tasks_of(planted(times(1.0)), [], s)[0]) for s in (SETTINGS, more))
    assert all((a == b[: len(a)]).all() for a, b in zip(few, many, strict=True))


def test_x_can_be_shifted_too():
    settings = SETTINGS.model_copy(update={"inputs": Distribution.uniform(3.0)})
    tasks = tasks_of(planted(times(1.0)), [1.0, 2.0], settings)
    assert [t.name for t in tasks] == ["U(-1,1)", "U(-1,1), x U(-3,3)", "U(-2,2), x U(-3,3)"]
    assert [t.in_distribution for t in tasks] == [True, False, False]
    assert tasks[0].test.prompts.x.abs().max() <= 1
    assert 2.5 < tasks[2].test.prompts.x.abs().max() <= 3


def test_gaussian_coefficients_are_shifted_by_their_deviation():
    trained = FamilyConfig(coefficients=Distribution(kind="gaussian", first=0.0, second=1.0))
    assert str(shifted(trained, 2.5, None).coefficients) == "N(0,2.5)"


@pytest.mark.parametrize("sigma", [0.0, -1.0, 0.0004, float("nan"), float("inf")])
def test_sigmas_that_are_none_are_refused(sigma):
    with pytest.raises(UsageError, match="cannot draw coefficients with sigma"):
        shifted(FamilyConfig(), sigma, None)


@pytest.mark.parametrize("text", ["U(-1,2)", "N(1,2)"])
def test_training_must_have_been_symmetric(text):
    plain = planted(times(1.0))
    config = plain.config.model_validate({**plain.config.model_dump(), "coefficients": text})
    lopsided = LabCheckpoint("lopsided", config, plain.model, "")
    with pytest.raises(UsageError, match="not symmetric about zero"):
        tasks_of(lopsided, [2.0], SETTINGS)
