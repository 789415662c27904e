"""EvoPress's depth file: exact text, round trips, refusals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.errors import UsageError
from shoal.core.mask import Mask, Part, Site
from shoal.surgery.interop.evopress import from_evopress, to_evopress


@st.composite
def masks(draw: st.DrawFn) -> Mask:
    depth = draw(st.integers(1, 40))
    places = draw(st.sets(st.integers(0, 2 * depth - 1)))
    return Mask(depth, frozenset(Site(i // 2, (Part.ATTN, Part.MLP)[i % 2]) for i in places))


def test_the_words_name_what_is_dropped():
    mask = Mask.parse("-[1,2.attn,3.mlp]", depth=5)
    text = "none\nattn+mlp\nattn\nmlp\nnone\n"
    assert to_evopress(mask) == text
    assert from_evopress(text) == mask
    assert from_evopress(text).blocks == (1,)


@given(masks())
def test_reads_back_what_it_writes(mask):
    text = to_evopress(mask)
    assert text.count("\n") == mask.depth
    assert from_evopress(text, mask.depth) == mask
    assert from_evopress(text.replace("\n", "\r\n")) == mask
    assert from_evopress(text.removesuffix("\n")) == mask


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("\n", "empty"),
        ("none\n\nnone\n", "line 2 of the EvoPress file is ''"),
        ("none\nnone\n\n", "line 3"),
        ("none\nattn \n", "line 2 .*'attn '.*without spaces"),
        ("none\nATTN\n", "line 2"),
        ("mlp+attn\n", "line 1"),
        ("nonenone\n", "line 1"),
        ("none\x00\n", "line 1"),
        ("none\x0battn\n", "line 1"),
        ("# note\nnone\n", "line 1"),
    ],
)
def test_other_lines_are_refused(text, said):
    with pytest.raises(UsageError, match=said):
        from_evopress(text)


def test_the_number_of_lines_is_the_depth():
    with pytest.raises(UsageError, match="has 2 lines, but the model has 3 blocks"):
        from_evopress("none\nattn\n", 3)
    with pytest.raises(UsageError, match="drop_two_consecutive"):
        from_evopress("none\nattn\n", 4)


@given(st.text())
def test_any_text_is_read_or_refused(text):
    try:
        mask = from_evopress(text)
    except UsageError:
        return
    assert from_evopress(to_evopress(mask)) == mask
