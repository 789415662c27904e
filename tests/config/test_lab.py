import math

import pytest

from shoal.config.lab import PRESETS, Distribution, FamilyConfig, TrainConfig, preset_named
from shoal.config.lab_run import LabRunConfig
from shoal.core.errors import UsageError


@pytest.mark.parametrize(
    ("text", "kind", "first", "second"),
    [
        ("U(-1,1)", "uniform", -1, 1),
        (" u( -0.5 , 2e1 ) ", "uniform", -0.5, 20),
        ("N(0,3)", "gaussian", 0, 3),
    ],
)
def test_distributions_are_read_and_written(text, kind, first, second):
    found = FamilyConfig.read({"coefficients": text}).coefficients
    assert (found.kind, found.first, found.second) == (kind, first, second)
    assert FamilyConfig.read({"coefficients": str(found)}).coefficients == found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("U(1,-1)", "lower end first"),
        ("U(1,1)", "single value"),
        ("U(-1e300,1e300)", "beyond 1e"),
        ("N(0,0)", "must be positive"),
        ("N(0,-1)", "must be positive"),
        ("U(-inf,1)", "finite"),
        ("U(nan,1)", "finite"),
        ("X(0,1)", "no distribution"),
        ("U(0,1", "no distribution"),
        ("U(a,b)", "no distribution"),
        ("", "no distribution"),
    ],
)
def test_what_is_no_distribution_is_refused(text, why):
    with pytest.raises(UsageError, match=why):
        FamilyConfig.read({"coefficients": text})


def test_moments_of_distributions():
    assert Distribution.uniform(3).variance == pytest.approx(3)
    assert Distribution.uniform(3).bound == 3
    assert Distribution(kind="gaussian", first=0, second=2).variance == 4
    assert math.isinf(Distribution(kind="gaussian", first=0, second=2).bound)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"width": 10, "heads": 4}, "no multiple of 4 heads"),
        ({"degree": 4}, "less than or equal to 3"),
        ({"degree": 0}, "greater than or equal to 1"),
        ({"steps": 0}, "greater than or equal to 1"),
        ({"batch": 10**11}, "less than or equal to"),
        ({"seed": 2**70}, "less than"),
        ({"learning_rate": "nan"}, "finite"),
        ({"colour": 1}, "unknown key"),
    ],
)
def test_bad_options_of_training_are_refused(values, why):
    with pytest.raises(UsageError, match=why):
        TrainConfig.read(values)


def test_the_curriculum_grows_to_all_points():
    config = TrainConfig(points=12, first_points=4, more_points=3, more_every=10)
    assert [config.points_at(s) for s in (0, 9, 10, 20, 30, 1000)] == [4, 4, 7, 10, 12, 12]


def test_presets():
    assert preset_named("small") == TrainConfig()
    paper = PRESETS["paper"][1]
    assert (paper.layers, paper.width, paper.points, paper.steps) == (12, 256, 41, 500_000)
    with pytest.raises(UsageError, match=r'unknown preset "smal".*small'):
        preset_named("smal")


def test_shifts_are_read_as_lists():
    assert LabRunConfig.read({"shifts": "2, 5"}).shifts == (2, 5)
    assert LabRunConfig.read({"shifts": 3}).shifts == (3,)
    for bad in ("0", "-1", "nan", "inf", "two"):
        with pytest.raises(UsageError):
            LabRunConfig.read({"shifts": bad})
