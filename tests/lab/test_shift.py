"""The shift experiment on models whose best mask is known."""

from itertools import combinations

import numpy as np
import pytest
import torch

from shoal.config.lab import TrainConfig
from shoal.config.shifts import ShiftSettings
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.lab.checkpoint import LabCheckpoint
from shoal.lab.controls import random_masks, select
from shoal.lab.model import LabModel
from shoal.lab.records import Shifts
from shoal.lab.shift import measure, transfer
from shoal.lab.tasks import tasks_of
from shoal.testing.planted import amplified, planted, times

SETTINGS = ShiftSettings(selection=32, test=48, random_masks=6)
DENSE, AMPLIFIER = Mask.dense(5), Mask.of(5, [3])


def run_shifts(checkpoint, sigmas, settings):
    """All that a lab run does for the shifts of one model, without keeping it."""
    tasks = tasks_of(checkpoint, sigmas, settings)
    chosen = [select(task, settings) for task in tasks]
    wanted = [mask for one in chosen for mask in (one.best, one.bsba)]
    return Shifts(
        model=checkpoint.name,
        fingerprint=checkpoint.fingerprint,
        seed=checkpoint.config.seed,
        trained=checkpoint.config.family.model_dump(mode="json"),
        settings=settings.model_dump(mode="json"),
        shifts=tuple(measure(t, one, wanted) for t, one in zip(tasks, chosen, strict=True)),
        transfer=transfer(tasks, chosen),
    )


def amplifier() -> LabCheckpoint:
    """Four blocks that are needed everywhere, and one that stretches what is new."""
    return planted(times(3.0), times(2.5), times(4.0), amplified, times(-1.0), scale=-1 / 30)


@pytest.fixture(scope="module")
def found() -> Shifts:
    return run_shifts(amplifier(), [3.0], SETTINGS)


def test_the_amplifier_is_what_is_removed(found):
    _, shift = found.shifts
    assert shift.selection.best == shift.selection.single == AMPLIFIER
    best = next(m for m in shift.masks if m.name == "best")
    assert best.test.gain.value == pytest.approx(1, abs=1e-6)
    assert best.test.difference.high < 0
    others = [m for m in (*shift.masks, *shift.random) if m.mask != AMPLIFIER]
    assert len(others) >= 5
    assert all(m.test.gain.value < 0.9 for m in others)
    assert shift.random_better == 0


def test_nothing_is_removed_in_distribution(found):
    shift = found.shifts[0]
    assert shift.in_distribution
    assert shift.selection.best == DENSE
    assert shift.selection.random == ()
    assert shift.selection.random_best is None
    assert shift.random_better is None
    best = next(m for m in shift.masks if m.name == "best")
    assert (best.test.gain.value, best.test.difference.value) == (0, 0)


def test_masks_are_held_against_every_task(found):
    cells = {(c.chosen_on, c.which, c.task): c for c in found.transfer}
    assert len(cells) == len(found.transfer) == 2 * 2 * 2
    wide, narrow = "U(-3,3)", "U(-1,1)"
    # The amplifier does nothing to what could occur in training.
    assert cells[wide, "best", narrow].test.difference.value == pytest.approx(0, abs=1e-9)
    assert cells[wide, "best", narrow].mask == AMPLIFIER
    assert cells[wide, "best", wide].test.gain.value == pytest.approx(1, abs=1e-6)
    assert cells[narrow, "best", wide].test.gain.value == 0
    best = next(m for m in found.shifts[1].masks if m.name == "best")
    assert cells[wide, "best", wide].test == best.test


def test_a_mask_for_shifted_functions_may_cost_in_distribution():
    """A block that is right up to what could occur in training, and too strong beyond."""

    def doubled(hidden):
        return torch.where(hidden.abs() > 1, 6 * hidden, 2 * hidden)

    found = run_shifts(planted(times(-1.0), doubled, times(-1.0), scale=0.5), [3.0], SETTINGS)
    cells = {(c.chosen_on, c.which, c.task): c for c in found.transfer}
    wide, narrow = "U(-3,3)", "U(-1,1)"
    assert cells[wide, "best", wide].mask == Mask.of(3, [1])
    assert cells[wide, "best", wide].test.gain.low > 0.8
    # Without the block predictions are half of what they should be.
    cost = cells[wide, "best", narrow].test
    assert cost.difference.low > 0
    zero = next(s for s in found.shifts if s.in_distribution).lengths["zero"]
    assert cost.loss.value == pytest.approx(np.mean(zero.value[2:]) / 4, rel=1e-3)
    assert cells[narrow, "best", wide].test.gain.value == 0


def test_lengths_show_the_masks_beside_the_references(found):
    for shift in found.shifts:
        assert set(shift.lengths) == {
            "dense",
            "best",
            "least_squares",
            "ridge",
            "clipped",
            "zero",
        }
        assert all(curve.steps == tuple(range(1, 9)) for curve in shift.lengths.values())
        assert shift.lengths["best"].value == pytest.approx(
            shift.lengths["least_squares"].value, rel=1e-3, abs=1e-9
        )
    shift = found.shifts[1]
    assert np.mean(shift.lengths["dense"].value[2:]) == pytest.approx(
        next(m for m in shift.masks if m.name == "dense").test.loss.value
    )
    assert shift.lengths["zero"].value[5] > 1e6 * shift.lengths["least_squares"].value[5]


def test_everything_follows_from_the_seed(found):
    assert run_shifts(amplifier(), [3.0], SETTINGS) == found
    checkpoint = planted(times(2.0), amplified, scale=0.5, seed=1)
    assert run_shifts(checkpoint, [3.0], SETTINGS).shifts[1] != found.shifts[1]


def test_results_survive_json(found):
    assert Shifts.model_validate_json(found.model_dump_json()) == found


@pytest.fixture(scope="module")
def untrained() -> LabCheckpoint:
    config = TrainConfig(layers=4, width=16, heads=2, points=6, seed=3)
    model = LabModel(config.model, 3).eval().requires_grad_(False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    return LabCheckpoint("untrained", config, model, "")


def test_choices_are_the_least_losses_on_the_selection_functions(untrained):
    task = tasks_of(untrained, [2.0], SETTINGS)[1]
    found = select(task, SETTINGS)
    loss = {
        mask: task.selection.evaluate([mask])[0].mean
        for k in range(4)
        for mask in (Mask.of(4, removed) for removed in combinations(range(4), k))
    }
    dense = Mask.dense(4)
    assert found.dense == loss[dense]
    assert loss[found.single] == min(loss[Mask.of(4, [i])] for i in range(4))
    assert [loss[s.mask] for s in found.path] == [s.loss for s in found.path]
    assert loss[found.best] == min(s.loss for s in found.path)
    assert loss[found.bsba] <= loss[dense]
    assert found.best != dense
    size = found.best.num_blocks
    assert all(m.num_blocks == size for m in found.random)
    assert found.random_best is not None
    assert found.random_best.num_blocks == size
    of_size = [m for m in loss if m.num_blocks == size]
    assert found.random_searched == min(found.evaluations, len(of_size))
    if found.random_searched == len(of_size):
        assert loss[found.random_best] == min(loss[m] for m in of_size)
    assert found.epsilon == pytest.approx(0.08 * found.dense)


def test_the_path_stays_within_its_share_of_the_dense_loss(untrained):
    task = tasks_of(untrained, [2.0], SETTINGS)[1]
    strict = select(task, SETTINGS.model_copy(update={"epsilon": 0.0}))
    loose = select(task, SETTINGS.model_copy(update={"epsilon": 1e6}))
    assert all(step.loss <= strict.dense for step in strict.path)
    assert (len(loose.path), loose.stopped_because) == (4, "cap")
    short = select(task, SETTINGS.model_copy(update={"epsilon": 1e6, "most": 2}))
    assert short.path == loose.path[:3]


def test_judging_shares_passes_and_chooses_nothing(untrained):
    tasks = tasks_of(untrained, [2.0], SETTINGS)
    selection = select(tasks[1], SETTINGS)
    fresh = tasks_of(untrained, [2.0], SETTINGS)[1]
    shift = measure(fresh, selection)
    assert shift.selection == selection
    assert shift == measure(tasks[1], selection)
    passes = fresh.test.passes
    assert passes.blocks < passes.naive
    for measured in (*shift.masks, *shift.random):
        alone = fresh.test.losses(measured.mask)
        assert measured.test.loss.value == pytest.approx(alone.mean())
        dense = fresh.test.losses(Mask.dense(4))
        assert measured.test.difference.value == pytest.approx((alone - dense).mean(), abs=1e-9)
        assert measured.test.gain.value == pytest.approx(1 - alone.mean() / dense.mean())
    better = [fresh.test.losses(m).mean() for m in selection.random]
    best = fresh.test.losses(selection.best).mean()
    assert shift.random_better == np.mean([value < best for value in better])


def test_random_masks_are_distinct_and_of_one_size():
    space = SearchSpace.of_blocks(8)
    drawn = [random_masks(space, 3, 20, np.random.default_rng(s)) for s in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) == 20
    assert {m.num_blocks for m in drawn[0]} == {3}
    assert len(set(random_masks(space, 1, 20, np.random.default_rng(0)))) == 8
    assert random_masks(space, 0, 20, np.random.default_rng(0)) == []


def test_random_masks_are_uniform():
    space = SearchSpace.of_blocks(4)
    counts: dict[Mask, int] = {}
    for seed in range(600):
        (mask,) = random_masks(space, 2, 1, np.random.default_rng(seed))
        counts[mask] = counts.get(mask, 0) + 1
    assert len(counts) == 6
    assert min(counts.values()) > 60
