from dataclasses import replace

import numpy as np
import pytest

from shoal.core.mask import Mask
from shoal.geometry.interventions import removed
from shoal.geometry.profile_part import gap_changes, profiles_part
from shoal.geometry.profiles import profile
from shoal.geometry.records import Gaps
from shoal.testing.linear_stacks import amplifier_update, linear_side, linear_stack, plain_update

AMPLIFIER = 1
MASK = Mask.of(4, [AMPLIFIER])


@pytest.fixture(scope="module")
def stack():
    return linear_stack(
        amplifier_update(i) if i == AMPLIFIER else plain_update(i) for i in range(4)
    )


@pytest.fixture(scope="module")
def sides(stack):
    return linear_side(stack, "id", 0.01), linear_side(stack, "ood", 2.0, seed=1)


@pytest.fixture(scope="module")
def part(stack, sides):
    return profiles_part(stack, *sides, MASK)


def test_removing_the_amplifier_realigns_and_the_interval_says_so(part):
    _, changes = part
    assert list(changes) == list(Gaps.model_fields)
    for name in ("norm", "distance", "last_norm", "last_distance"):
        found = changes[name]
        assert found.change.value == found.after - found.before
        assert found.change.low <= found.change.value <= found.change.high < 0


def test_removing_a_block_that_shrinks_does_not_realign(stack, sides):
    _, changes = profiles_part(stack, *sides, Mask.of(4, [2]))
    assert changes["distance"].change.low > changes["distance"].change.value - 0.2
    assert changes["distance"].change.high > -0.2


def test_profiles_are_those_of_each_task_dense_and_pruned(stack, sides, part):
    profiles, changes = part
    assert list(profiles) == ["id", "ood", "id_pruned", "ood_pruned"]
    assert profiles["ood"] == profile(stack, sides[1].texts).to_record()
    with removed(stack, MASK):
        table = profile(stack, sides[1].texts)
    assert profiles["ood_pruned"] == table.to_record()
    gaps = table.gaps(profile(stack, sides[0].texts))
    assert changes["cosine"].after == gaps.cosine


def test_without_a_mask_there_are_no_pruned_profiles(stack, sides, part):
    profiles, changes = profiles_part(stack, *sides, None)
    assert list(profiles) == ["id", "ood"]
    assert changes == {}
    assert profiles["id"] == part[0]["id"]


def test_the_same_seed_gives_the_same(stack, sides, part):
    assert profiles_part(stack, *sides, MASK) == part
    assert profiles_part(stack, *sides, MASK, seed=1)[1] != part[1]


def test_what_does_not_change_has_a_change_of_exactly_zero(stack, sides):
    """Paired: the same sequences are drawn before and after, so noise between them cancels."""
    reference, table = (profile(stack, side.texts) for side in sides)
    for found in gap_changes(table, table, reference).values():
        assert (found.change.low, found.change.value, found.change.high) == (0, 0, 0)


def test_a_single_sequence_has_no_last_pairs_and_an_open_interval(stack, sides):
    one = linear_side(stack, "ood", 2.0, sequences=1)
    profiles, changes = profiles_part(stack, sides[0], one, MASK)
    assert profiles["ood"].last_distance == ()
    assert "last_distance" not in changes
    assert changes["norm"].change.low is None


def test_infinite_gaps_before_and_after_have_no_change_and_no_warning(stack, sides):
    reference, table = (profile(stack, side.texts) for side in sides)
    norm = table.norm.copy()
    norm[:, 2] = np.inf
    broken = replace(table, norm=norm)
    found = gap_changes(broken, broken, reference)
    assert found["norm"].before == np.inf
    assert np.isnan(found["norm"].change.value)
    assert found["distance"].change.value == 0
