from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.layout import Layout, fuses
from shoal.core.mask import Mask, Part, Site

sublayer_masks = st.integers(1, 8).flatmap(
    lambda depth: st.sets(st.integers(0, 2 * depth - 1)).map(
        lambda places: Mask(
            depth,
            frozenset(Site(p // 2, Part.MLP if p % 2 else Part.ATTN) for p in places),
        )
    )
)


def rest(mask: Mask) -> list[Site]:
    """What stays, in order."""
    return [s for i in range(mask.depth) for s in Site(i).sublayers if s not in mask.sublayers]


@given(sublayer_masks, st.booleans())
def test_a_layout_runs_what_stays_in_order(mask: Mask, fuse: bool) -> None:
    layout = Layout.of(mask, fuse=fuse)
    ran = [
        site
        for slot in layout.slots
        for site in (Site(slot.attn, Part.ATTN), Site(slot.mlp, Part.MLP))
        if site.part is not slot.zeroed
    ]
    assert ran == rest(mask)
    assert all(slot.attn <= slot.mlp for slot in layout.slots)
    assert all(slot.attn == slot.mlp for slot in layout.zeroed)


@given(sublayer_masks)
def test_fusing_needs_the_fewest_blocks(mask: Mask) -> None:
    fused, plain = Layout.of(mask), Layout.of(mask, fuse=False)
    stays = rest(mask)
    # An attention after an attention, or an MLP after an MLP, cannot share a block.
    breaks = sum(not (a.part is Part.ATTN and b.part is Part.MLP) for a, b in pairwise(stays))
    assert len(fused) == (breaks + 1 if stays else 0)
    assert len(plain) == len(mask.kept) >= len(fused)
    assert not plain.fused


@given(sublayer_masks)
def test_what_fuses_has_runs_of_even_length(mask: Mask) -> None:
    runs, length = [], 0
    for place in range(2 * mask.depth + 1):
        if place in mask.places:
            length += 1
        else:
            runs.append(length)
            length = 0
    assert fuses(mask) == all(run % 2 == 0 for run in runs)


@pytest.mark.parametrize(
    ("text", "slots"),
    [
        ("-[]", "0 1 2 3"),
        ("-[1]", "0 2 3"),
        ("-[1.mlp,2.attn]", "0 1.attn+2.mlp 3"),
        ("-[1.mlp]", "0 1.attn 2 3"),
        ("-[2.attn]", "0 1 2.mlp 3"),
        ("-[0.attn]", "0.mlp 1 2 3"),
        ("-[3.mlp]", "0 1 2 3.attn"),
        ("-[0.mlp,1,2.attn]", "0.attn+2.mlp 3"),
        ("-[1.mlp,2.mlp,3.attn]", "0 1.attn 2.attn+3.mlp"),
    ],
)
def test_known_layouts(text: str, slots: str) -> None:
    layout = Layout.of(Mask.parse(text, 4))
    assert " ".join(map(str, layout.slots)) == slots
    assert layout.whole == Mask.parse(text, 4).whole_blocks_only
