from collections import Counter

import pytest

from shoal.core.errors import UsageError
from shoal.core.mask import Mask
from shoal.geometry.settings import InterventionSettings, control_masks


def test_controls_are_other_blocks_as_many_distinct_and_the_same_by_seed():
    mask = Mask.of(12, [2, 5, 6])
    found = control_masks(mask, 5, seed=1)
    assert len(set(found)) == 5
    assert all(one.num_blocks == 3 and not set(one.blocks) & {2, 5, 6} for one in found)
    assert found == control_masks(mask, 5, seed=1)
    assert found != control_masks(mask, 5, seed=2)
    # The first few do not depend on how many are asked for.
    assert control_masks(mask, 2, seed=1) == found[:2]


def test_every_other_block_comes_up():
    found = control_masks(Mask.of(6, [0]), 5, seed=0)
    assert sorted(one.blocks for one in found) == [(1,), (2,), (3,), (4,), (5,)]


def test_there_are_no_more_controls_than_sets_of_other_sites():
    assert control_masks(Mask.of(4, [0, 1]), 3) == (Mask.of(4, [2, 3]),)
    assert control_masks(Mask.of(4, [0, 1]), 0) == ()
    assert control_masks(Mask.of(3, [0, 1]), 3) == ()
    assert control_masks(Mask.dense(3), 3) == ()


def test_controls_of_parts_have_as_many_of_each_kind_and_never_make_a_block():
    mask = Mask.parse("-[1,2.attn,3.mlp,4.mlp]", 9)
    found = control_masks(mask, 20, seed=0)
    assert len(found) == 20
    for one in found:
        assert Counter(s.part for s in one) == Counter(s.part for s in mask)
        assert not one.sublayers & mask.sublayers


def test_only_sites_that_can_be_drawn_are():
    mask = Mask.parse("-[1.attn]", 5)
    allowed = list(Mask.parse("-[1.attn,2.attn,4]", 5))
    assert control_masks(mask, 3, sites=allowed) == (Mask.parse("-[2.attn]", 5),)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"alphas": (0.5, -0.1)}, "-0.1"),
        ({"ridges": (-1.0,)}, "-1.0"),
        ({"fit_ridges": ()}, "fit_ridges"),
        ({"masks": -1}, "-1"),
    ],
)
def test_settings_that_mean_nothing_are_refused(bad, says):
    with pytest.raises(UsageError, match=says):
        InterventionSettings(**bad)
