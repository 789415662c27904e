from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from shoal.core.mask import Mask
from shoal.geometry import inverses
from shoal.geometry.bench import Bench
from shoal.geometry.collecting import ALL
from shoal.geometry.points import (
    KINDS,
    dense_points,
    interventions_part,
    inverse_points,
    notes,
    removal_points,
    scaling_points,
    steps,
)
from shoal.geometry.settings import InterventionSettings
from shoal.testing.linear_stacks import amplifier_update, linear_side, linear_stack, plain_update

AMPLIFIERS = (1, 3)
MASK = Mask.of(6, AMPLIFIERS)
SETTINGS = InterventionSettings(
    alphas=(0.0, 0.5, 1.0, 1.5), ridges=(1e-8, 1e-3), fit_ridges=(1e-8, 1e-4), seeds=(0, 1), masks=2
)


@pytest.fixture(scope="module")
def stack():
    return linear_stack(
        amplifier_update(i) if i in AMPLIFIERS else plain_update(i) for i in range(6)
    )


@pytest.fixture(scope="module")
def sides(stack):
    return linear_side(stack, "id", 0.01), linear_side(stack, "ood", 2.0, seed=1)


@pytest.fixture(scope="module")
def bench(stack, sides):
    return Bench.of(stack, *sides)


@pytest.fixture(scope="module")
def dense(bench):
    return dense_points(bench, MASK, SETTINGS, ALL)[0]


@pytest.fixture(scope="module")
def removals(bench):
    return removal_points(bench, MASK, SETTINGS, ALL)


def _measured(point):
    return point.loss_id, point.loss_ood, point.gaps


def test_the_dense_point_is_the_model_as_it_is(dense, bench, sides):
    assert (dense.intervention, dense.sites) == ("dense", "-[]")
    assert (dense.loss_id, dense.loss_ood) == (sides[0].loss(), sides[1].loss())
    assert bench.point("dense", MASK, "none", nullcontext()).gaps == dense.gaps


def test_removing_the_amplifiers_helps_and_removing_others_does_not(dense, removals):
    selected, *others = removals
    assert (selected.sites, selected.group, selected.seed) == ("-[1,3]", "selected", None)
    assert [(one.group, one.seed) for one in others] == [("unselected", 0), ("unselected", 1)]
    assert selected.loss_ood.high < dense.loss_ood.low / 10
    assert selected.gaps.distance < dense.gaps.distance / 2
    for one in others:
        assert one.loss_ood.value > dense.loss_ood.value
        assert not set(Mask.parse(one.sites, 6).blocks) & set(AMPLIFIERS)


def test_single_blocks_are_removed_where_asked_for(bench, removals):
    settings = InterventionSettings(masks=0, singles=True)
    found = removal_points(bench, Mask.dense(6), settings, ALL)
    assert [(one.group, one.sites) for one in found] == [(str(i), f"-[{i}]") for i in range(6)]
    best = min(found, key=lambda one: one.loss_ood.value)
    assert int(best.group) in AMPLIFIERS


def test_the_ends_of_the_alpha_grid_are_the_dense_and_the_pruned_model_exactly(
    bench, dense, removals
):
    points = scaling_points(bench, MASK, SETTINGS, ALL)
    for sites, pruned in zip(("-[1,3]", *(r.sites for r in removals[1:])), removals, strict=True):
        curve = {one.alpha: one for one in points if one.sites == sites}
        assert list(curve) == [0.0, 0.5, 1.0, 1.5]
        assert {one.group for one in curve.values()} == {pruned.group}
        assert _measured(curve[0.0]) == _measured(pruned)
        assert _measured(curve[1.0]) == _measured(dense)
    losses = [one.loss_ood.value for one in points if one.group == "selected"]
    assert losses == sorted(losses)


def test_the_inverse_of_a_linear_block_restores_removal_and_random_maps_do_not(
    bench, dense, removals
):
    points = inverse_points(bench, MASK, SETTINGS, ALL)
    exact, shrunk, *others = points
    assert (exact.ridge, shrunk.ridge) == (1e-8, 1e-3)
    assert exact.r2 > 0.9999
    pruned = removals[0]
    assert pruned.loss_ood.value < 1e-10 < 1 < dense.loss_ood.value
    assert exact.loss_ood.value == pytest.approx(pruned.loss_ood.value, abs=1e-4)
    for name, value in pruned.gaps:
        assert getattr(exact.gaps, name) == pytest.approx(value, abs=1e-4)
    assert exact.loss_ood.value < shrunk.loss_ood.value
    assert [(one.intervention, one.seed) for one in others] == [
        ("random", 0),
        ("random", 1),
        ("rotated", 0),
        ("rotated", 1),
    ]
    for one in others:
        assert (one.ridge, one.r2, one.sites) == (exact.ridge, exact.r2, "-[1,3]")
        assert one.gaps.distance > pruned.gaps.distance + 0.1
        assert one.loss_ood.low > 0.5
    assert others[0].loss_ood != others[1].loss_ood


def test_a_later_inverse_is_fitted_behind_the_earlier():
    """In a stack that is linear only where the earlier inverse puts the states."""

    class Bent(torch.nn.Module):
        def forward(self, hidden_states):
            planted = hidden_states[..., :1]
            # Below 60 nothing happens; much of what the first amplifier makes is folded.
            folded = torch.where(planted.abs() > 60, -planted, planted)
            return torch.cat([folded, hidden_states[..., 1:]], -1)

    bent = linear_stack([amplifier_update(0, 40.0), plain_update(1)])
    sides = linear_side(bent, "id", 0.01), linear_side(bent, "ood", 2.0, seed=1)
    bent.blocks.layers[1] = Bent()
    bench = Bench.of(bent, *sides)
    settings = InterventionSettings(ridges=(1e-8,), fit_ridges=(1e-8,), seeds=())
    (point,) = inverse_points(bench, Mask.of(2, [0, 1]), settings, ALL)
    assert point.r2 > 0.9999
    # Without the first inverse no linear map describes the second block.
    (lone,) = inverse_points(bench, Mask.of(2, [1]), settings, ALL)
    assert lone.r2 < 0.9


def test_classes_get_maps_of_their_own(bench):
    classes = {"x": slice(0, None, 2), "y": slice(1, None, 2)}
    point, *_ = inverse_points(bench, MASK, SETTINGS, classes)
    assert point.loss_ood.value < 1e-4
    only_x = {"x": slice(0, None, 2)}
    half, *_ = inverse_points(bench, MASK, SETTINGS, only_x)
    assert half.loss_ood.value > 1


def test_all_points_are_those_of_the_kinds_and_every_step_is_counted(stack, sides, bench):
    settings = InterventionSettings(
        alphas=(0.5,), ridges=(1e-8, 1e-3), fit_ridges=(1e-8,), seeds=(4,), masks=1
    )
    done = []
    found = interventions_part(stack, *sides, MASK, settings, on_step=done.append)
    assert found == tuple(
        point for kind in KINDS.values() for point in kind(bench, MASK, settings, ALL)
    )
    counted = steps(stack, MASK, settings)
    # Of the inverses, one fit of the first block and one of the second for each ridge.
    assert counted == {"dense": 1, "removed": 2, "scaled": 2, "inverse": 3 + 2 + 2}
    assert sum(done) == sum(counted.values())
    assert notes(stack, MASK, settings) == ()


def test_without_a_mask_the_dense_model_is_what_is_left(stack, sides):
    done = []
    (point,) = interventions_part(stack, *sides, None, SETTINGS, on_step=done.append)
    assert point.intervention == "dense"
    assert sum(steps(stack, Mask.dense(6), SETTINGS).values()) == len(done) == 1


def test_what_parts_of_blocks_cannot_have_is_told(stack):
    mask = Mask.parse("-[1.attn]", 6)
    counted = steps(stack, mask, SETTINGS)
    assert (counted["scaled"], counted["inverse"]) == (0, 0)
    left_out, fewer = notes(stack, mask, SETTINGS)
    assert "-[1.attn] removes parts of blocks" in left_out
    # Of these blocks no part can be told.
    assert fewer.startswith("0 control masks instead of 2")


def test_inverses_are_fitted_on_more_texts_where_there_are_some(stack, sides, monkeypatch):
    id, ood = sides
    more = linear_side(stack, "more", 2.0, seed=9, sequences=40).texts
    read = []
    collect = inverses.collected

    def noting(stack, texts, *rest):
        read.append(texts)
        return collect(stack, texts, *rest)

    monkeypatch.setattr(inverses, "collected", noting)
    bench = Bench.of(stack, id, replace(ood, more=more))
    found = inverse_points(bench, MASK, SETTINGS, ALL)
    assert read
    assert all(texts is more for texts in read)
    assert found[0].r2 == pytest.approx(1.0)
