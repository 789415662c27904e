import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.errors import UsageError
from shoal.core.mask import Mask, Part, Site


@st.composite
def masks(draw: st.DrawFn, max_depth: int = 40) -> Mask:
    depth = draw(st.integers(1, max_depth))
    options: list[list[Part]] = [[], [Part.BLOCK], [Part.ATTN], [Part.MLP], [Part.ATTN, Part.MLP]]
    chosen = draw(st.lists(st.sampled_from(options), min_size=depth, max_size=depth))
    sites = [Site(layer, part) for layer, parts in enumerate(chosen) for part in parts]
    return Mask(depth, frozenset(sites))


@given(masks())
def test_text_and_json_lose_nothing(mask: Mask) -> None:
    assert Mask.parse(str(mask), mask.depth) == mask
    assert Mask.from_json(json.loads(json.dumps(mask.to_json()))) == mask


@given(masks(), masks())
def test_equal_text_means_equal_masks(one: Mask, other: Mask) -> None:
    if one.depth == other.depth:
        assert (str(one) == str(other)) == (one == other) == (one.removed == other.removed)
    if one == other:
        assert hash(one) == hash(other)


@given(masks())
def test_blocks_and_kept_part_the_model(mask: Mask) -> None:
    assert sorted((*mask.blocks, *mask.kept)) == list(range(mask.depth))
    assert mask.num_blocks == len(mask.blocks)
    assert mask.whole_blocks_only == all(s.part is Part.BLOCK for s in mask)
    assert len(mask) == len(list(mask)) == len(mask.removed)
    assert list(mask) == sorted(mask.removed)


@given(masks(), st.data())
def test_without_and_restored_undo_each_other(mask: Mask, data: st.DataObject) -> None:
    back = data.draw(st.sets(st.sampled_from(sorted(mask.removed)))) if mask.removed else set()
    smaller = mask.restored(back)
    assert smaller.removed == mask.removed - back
    assert smaller.without(back) == mask
    assert mask.without([]) == mask.restored([]) == mask


@given(st.integers(1, 40), st.data())
def test_of_blocks(depth: int, data: st.DataObject) -> None:
    blocks = data.draw(st.sets(st.integers(0, depth - 1)))
    mask = Mask.of(depth, blocks)
    assert mask.blocks == tuple(sorted(blocks))
    assert mask.whole_blocks_only


@pytest.mark.parametrize(
    ("sites", "text"),
    [
        ([], "-[]"),
        (["3"], "-[3]"),
        (["3", "4"], "-[3-4]"),
        (["9", "10", "11", "22.attn", "23.mlp"], "-[9-11,22.attn,23.mlp]"),
        (["9", "10", "11", "22.attn", "22.mlp"], "-[9-11,22]"),
        (["17.mlp", "18.attn"], "-[17.mlp,18.attn]"),
        (["2.attn", "10", "9", "1"], "-[1,2.attn,9-10]"),
    ],
)
def test_text_form(sites: list[str], text: str) -> None:
    assert str(Mask(30, frozenset(map(Site.parse, sites)))) == text


def test_reading_is_lenient_about_space_and_order() -> None:
    assert Mask.parse(" -[ 4 , 1 - 1 ,2.mlp] ".replace(" - ", "-"), 6) == Mask(
        6, frozenset({Site(4), Site(1), Site(2, Part.MLP)})
    )
    assert Mask.parse("-[1,0-2]", 6) == Mask.of(6, [0, 1, 2])


@pytest.mark.parametrize("text", ["", "[1]", "1,2", "-[1", "-[1;2]", "-[a]", "-[1.block]", "-[-1]"])
def test_other_text_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(UsageError, match=r"-\[9-12,22\.attn\]|12\.attn"):
        Mask.parse(text, 30)


@pytest.mark.parametrize("text", ["-[3-2]", "-[28-30]", "-[0-999999999999]"])
def test_ranges_stay_inside_the_model(text: str) -> None:
    with pytest.raises(UsageError, match="30 blocks"):
        Mask.parse(text, 30)


def test_indices_stay_inside_the_model() -> None:
    for build in (lambda: Mask.of(4, [4]), lambda: Mask.of(4, [-1]), lambda: Mask.parse("-[4]", 4)):
        with pytest.raises(UsageError, match="4 blocks, 0 to 3"):
            build()
    with pytest.raises(UsageError, match="depth of at least 1"):
        Mask(0)


def test_a_block_is_not_removed_twice() -> None:
    with pytest.raises(UsageError, match=r"2\.attn is removed twice: block 2 goes whole"):
        Mask(4, frozenset({Site(2), Site(2, Part.ATTN)}))


@given(masks())
def test_attention_and_mlp_make_the_block(mask: Mask) -> None:
    parts = Mask(mask.depth, mask.sublayers)
    assert parts == mask
    assert str(parts) == str(mask)
    assert mask.places == {s.position for s in mask.sublayers}
    for layer in range(mask.depth):
        both = {Site(layer, Part.ATTN), Site(layer, Part.MLP)}
        assert (Site(layer) in mask.removed) == (both <= mask.sublayers)


def test_half_a_block_can_be_put_back() -> None:
    mask = Mask.of(4, [2]).restored([Site(2, Part.ATTN)])
    assert str(mask) == "-[2.mlp]"
    assert mask.without([Site(2, Part.ATTN)]) == Mask.of(4, [2])
    assert mask.without([Site(2)]) == Mask.of(4, [2])


@pytest.mark.parametrize(
    "value",
    [
        None,
        "-[1]",
        [],
        {},
        {"depth": 3},
        {"depth": "3", "removed": []},
        {"depth": 3, "removed": "1"},
        {"depth": 3, "removed": [1.5]},
        {"depth": 3, "removed": ["3"]},
    ],
)
def test_malformed_json_is_refused(value: Any) -> None:
    with pytest.raises(UsageError):
        Mask.from_json(value)


def test_dense_removes_nothing() -> None:
    assert Mask.dense(3) == Mask.of(3, [])
    assert Mask.dense(3).kept == (0, 1, 2)
