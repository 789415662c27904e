"""What figures and tables take from the records: groups, means over models, ratios."""

import math

import pytest
from scipy import stats

from shoal.config.lab_run import LabRunConfig
from shoal.report.lab.alphas import mean_curve
from shoal.report.lab.lengths import shown_tasks
from shoal.report.lab.reading import (
    by_range,
    geometric,
    mean_gains,
    over_models,
    random_range,
    range_names,
    removal_gain,
)
from shoal.report.lab.redo import command
from shoal.report.lab.removed import removal_order
from shoal.report.lab.transfer import ratio_text, ratios
from shoal.report.lab.words import removed, share
from shoal.testing.lab_runs import made_up_lab_run

SMALL = {"sigmas": (1.0, 2.0, 8.0), "geometry_sigmas": (2.0,), "depth": 4, "points": 4}


@pytest.fixture(scope="module")
def run():
    return made_up_lab_run(**SMALL)


def test_means_over_models_have_the_t_interval():
    values = [0.1, 0.4, 0.25]
    found = over_models(values)
    low, high = stats.t.interval(0.95, 2, loc=0.25, scale=stats.sem(values))
    assert (found.value, found.low, found.high) == pytest.approx((0.25, low, high))
    assert found.count == 3


@pytest.mark.parametrize(
    "values", [[0.3], [0.1, math.inf], [0.1, math.nan], [math.inf, -math.inf], [1e300, -1e300]]
)
def test_where_there_is_no_interval_there_is_none(values):
    found = over_models(values)
    assert found.low is found.high is None
    assert found.count == len(values)


def test_no_models_have_no_mean():
    with pytest.raises(ValueError, match="no models"):
        over_models([])


def test_means_of_gains_are_those_of_the_record(run):
    narrow = by_range(run.models)["U(-1,1)"]
    _, mean = mean_gains(narrow)["U(-8,8)"]
    gains = [
        mask.test.gain.value
        for model in narrow
        for shift in model.shifts
        if shift.sigma == 8
        for mask in shift.masks
        if mask.name == "best"
    ]
    assert len(gains) == 3
    assert mean.value == pytest.approx(sum(gains) / 3)


def test_models_are_grouped_by_what_they_were_trained_on(run):
    assert {k: len(v) for k, v in by_range(run.models).items()} == {"U(-1,1)": 3, "U(-5,5)": 1}
    square = run.models[0].model_copy(
        update={"model": "square", "trained": run.models[0].trained | {"degree": 2}}
    )
    names = range_names([*run.models, square])
    assert names["square"] == "degree 2, U(-1,1)"
    assert names["linear-narrow-0"] == "degree 1, U(-1,1)"


def test_ratios_average_in_the_logarithm():
    assert geometric([0.5, 2.0]) == pytest.approx(1)
    assert geometric([0.0, 2.0]) == 0
    assert geometric([math.inf, 2.0]) == math.inf
    assert math.isnan(geometric([0.0, math.inf]))
    assert math.isnan(geometric([]))
    assert geometric([1e308, 1e308]) > 1e300
    x, y = mean_curve([[(0.0, 0.5), (1.0, 1.0)], [(0.0, 2.0)]], ratio=True)
    assert (x, y) == ([0.0, 1.0], [pytest.approx(1), pytest.approx(1)])
    assert mean_curve([[(0.0, 1.0)], [(0.0, 2.0)]], ratio=False) == ([0.0], [1.5])


def test_transfer_is_chosen_on_by_judged_on(run):
    model = run.models[0]
    names, labels, table = ratios([model])
    assert names == ["U(-1,1)", "U(-2,2)", "U(-8,8)"]
    assert labels == ["1 (training)", "2", "8"]
    cell = next(c for c in model.transfer if c.chosen_on == "U(-8,8)" and c.task == "U(-1,1)")
    assert table[2, 0] == pytest.approx(1 - cell.test.gain.value)
    assert table[2, 0] != pytest.approx(table[0, 2])
    _, _, both = ratios([model, model.model_copy(update={"transfer": ()})])
    assert both == pytest.approx(table)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.625, "0.62"), (12.3, "12"), (4e-5, "4e-5"), (0.0, "0"), (3e6, "3e6"), (math.inf, "∞")],
)
def test_ratios_fit_into_cells(value, text):
    assert ratio_text(value) == text


def test_shown_tasks_are_training_near_double_and_far(run):
    assert [s.sigma for s in shown_tasks(run.models[0])] == [1, 2, 8]
    wide = made_up_lab_run(models=[("wide", 5.0)], geometry_sigmas=(), depth=4, points=3)
    assert [s.sigma for s in shown_tasks(wide.models[0])] == [5, 0.5, 10]
    alone = made_up_lab_run(
        models=[("alone", 1.0)], sigmas=(), geometry_sigmas=(), depth=4, points=3
    )
    assert [s.sigma for s in shown_tasks(alone.models[0])] == [1]


def test_removal_is_numbered_along_the_path(run):
    selection = next(s for s in run.models[0].shifts if s.selection.best.num_blocks).selection
    order = removal_order(selection)
    for earlier, later in zip(selection.path, selection.path[1:], strict=False):
        (new,) = set(later.mask.blocks) - set(earlier.mask.blocks)
        assert order[new] == later.mask.num_blocks
    assert set(order) == set(selection.best.blocks) | set(selection.bsba.blocks)


def test_random_masks_have_a_range(run):
    shift = next(s for s in run.models[0].shifts if s.random)
    low, middle, high = random_range(shift)
    gains = sorted(m.test.gain.value for m in shift.random)
    assert (low, high) == (gains[0], gains[-1])
    assert middle == gains[len(gains) // 2]
    assert random_range(run.models[0].shifts[0]) is None


def test_removal_gain_is_of_the_functions_of_the_geometry(run):
    placed = run.geometries[0]
    points = {p.intervention: p.loss_ood.value for p in placed.geometry.points if not p.seed}
    selected = next(
        p for p in placed.geometry.points if (p.intervention, p.group) == ("removed", "selected")
    )
    wanted = 1 - selected.loss_ood.value / points["dense"]
    assert removal_gain(placed) == pytest.approx(wanted)
    bare = placed.model_copy(update={"geometry": placed.geometry.model_copy(update={"points": ()})})
    assert removal_gain(bare) is None


def test_words(run):
    assert share(0.1234) == "12.3%"
    assert share(-3.5) == "−350%"
    assert share(math.nan) == "no number"
    assert share(-math.inf) == "−∞%"
    assert removed(run.models[0].shifts[0].selection.best) == "nothing"


def test_the_command_holds_what_differs_from_the_defaults():
    settings = LabRunConfig(models=("a", "b c"), shifts=(1, 2.5), out="x").model_dump(mode="json")
    assert command(settings) == "shoal lab run --models 'a,b c' --shifts 1,2.5"
    assert command(LabRunConfig().model_dump(mode="json")) == "shoal lab run"
    assert command({"inputs": "U(-2,2)", "unknown": 3}) == "shoal lab run --inputs 'U(-2,2)'"
