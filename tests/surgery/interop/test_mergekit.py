"""mergekit's passthrough slices: exact text, round trips, and everything that is no mask."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.errors import UsageError
from shoal.core.mask import Mask
from shoal.surgery.interop.mergekit import from_mergekit, to_mergekit

GOLDEN = """\
# Written by shoal: keeps 26 of 30 blocks, mask -[9-11,29].
# dense depth: 30
# A layer_range is half-open: its last number is the first block that is not copied.
slices:
  - sources:
      - model: org/name
        layer_range: [0, 9]
  - sources:
      - model: org/name
        layer_range: [12, 29]
merge_method: passthrough
dtype: bfloat16
"""


@st.composite
def block_masks(draw: st.DrawFn) -> Mask:
    depth = draw(st.integers(1, 40))
    removed = draw(st.sets(st.integers(0, depth - 1), max_size=depth - 1))
    return Mask.of(depth, removed)


def text_of(*ranges, model="org/name", **fields):
    slices = [{"sources": [{"model": model, "layer_range": list(r)}]} for r in ranges]
    return yaml.safe_dump({"slices": slices, "merge_method": "passthrough", **fields})


def test_the_text():
    assert to_mergekit(Mask.of(30, [9, 10, 11, 29]), "org/name", "bfloat16") == GOLDEN


@given(block_masks())
def test_reads_back_what_it_writes(mask):
    text = to_mergekit(mask, "org/name", "float16", {"layer_types": "sliced"})
    assert from_mergekit(text) == mask
    assert from_mergekit(text, mask.depth) == mask
    assert from_mergekit(text.replace("\n", "\r\n")) == mask


@given(block_masks())
def test_copies_every_kept_block_once(mask):
    slices = yaml.safe_load(to_mergekit(mask, "m", "float32"))["slices"]
    ranges = [entry["sources"][0]["layer_range"] for entry in slices]
    assert [i for first, end in ranges for i in range(first, end)] == list(mask.kept)
    assert all(first < end for first, end in ranges)


@pytest.mark.parametrize(
    "model",
    [
        "org/name",
        "org/name@main",
        "/data/a model",
        "./x: y",
        "true",
        "1e3",
        "#x",
        "a #b",
        "模型/名",
        "C:\\models\\x",
        "~",
        "it's",
        "- x",
        "{a}",
        "&a",
        "*a",
        "null",
        "0x1F",
        "./a/../b_c-d.e",
    ],
)
def test_any_name_stays_a_text(model):
    text = to_mergekit(Mask.of(3, [1]), model, "float16")
    assert yaml.safe_load(text)["slices"][1]["sources"][0]["model"] == model


@pytest.mark.parametrize("model", ["", " x", "x\ny", 'x"y', "x\x00", "base+lora", "a@b@c"])
def test_names_that_mergekit_would_misread(model):
    with pytest.raises(UsageError, match="mergekit"):
        to_mergekit(Mask.of(3, [1]), model, "float16")


def test_per_layer_fields_are_warned_of():
    fields = {"layer_types": "sliced", "max_window_layers": "recounted", "a\nslices: x": "y\n"}
    text = to_mergekit(Mask.of(3, [1]), "m", "torch.float16", fields)
    assert "WARNING" in text
    assert "\n# layer_types (sliced), max_window_layers (recounted), a slices: x (y)\n" in text
    assert "dtype: float16\n" in text
    assert from_mergekit(text) == Mask.of(3, [1])


@pytest.mark.parametrize(
    ("mask", "dtype", "said"),
    [
        (Mask.parse("-[1.attn]", 3), "float16", "whole blocks only"),
        (Mask.of(3, range(3)), "float16", "Keep at least one"),
        (Mask.of(3, [1]), "int8", 'unknown dtype "int8"'),
    ],
)
def test_what_cannot_be_written(mask, dtype, said):
    with pytest.raises(UsageError, match=said):
        to_mergekit(mask, "m", dtype)


def test_foreign_files_need_the_depth():
    text = text_of((0, 4), (6, 7), (7, 8), dtype="bfloat16", tokenizer_source="base")
    assert from_mergekit(text, 10) == Mask.of(10, [4, 5, 8, 9])
    assert from_mergekit(text, 8) == Mask.of(8, [4, 5])
    with pytest.raises(UsageError, match=r"ends with block 7 .* Give its depth"):
        from_mergekit(text)
    with pytest.raises(UsageError, match=r"\[7, 8\] goes beyond the model: it has 7 blocks"):
        from_mergekit(text, 7)
    with pytest.raises(UsageError, match="written for 30 blocks, but the model has 32"):
        from_mergekit(GOLDEN, 32)


def test_a_base_model_may_be_the_same():
    assert from_mergekit(text_of((0, 2), base_model="org/name"), 3) == Mask.of(3, [2])
    with pytest.raises(UsageError, match="two models"):
        from_mergekit(text_of((0, 2), base_model="other"), 3)


SOURCE = {"model": "m", "layer_range": [0, 2]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is None, not a mapping"),
        ("- a", "not a mapping"),
        ("slices: [", "no YAML: .* in line 1"),
        ("slices: \x00", "no YAML"),
        ("a: 2001-99-99", "no YAML"),
        ("slices: " + "[" * 5000, "no YAML"),
        ("slices: !!python/object:os.system {}", "no YAML"),
        ("merge_method: passthrough", "has no slices"),
        ("slices: []\nmerge_method: passthrough", "at least one entry"),
        ("slices: {}\nmerge_method: passthrough", "not a list"),
        ("slices: [1]\nmerge_method: passthrough", "slice 1 is 1, not a mapping"),
        ("slices: [{}]\nmerge_method: passthrough", "slice 1 has no sources"),
        (text_of((0, 2)).replace("passthrough", "slerp"), "merge_method is 'slerp'"),
        (text_of((0, 2)).replace("merge_method: passthrough\n", ""), "has no merge_method"),
        (text_of((0, 2), parameters={"scale": 0.5}), "sets 'parameters'"),
        (text_of((0, 2), models=[]), "sets 'models'"),
        (text_of((0, 2), modules={}), "sets 'modules'"),
        (text_of((0, 2), model="a+lora"), "without a LoRA"),
        (text_of((0, 2), model=7), "without a LoRA"),
        (text_of((0, 2)) + text_of((0, 2), model="b").replace("slices", "x"), "sets 'x'"),
        (text_of((3, 3)), r"\[3, 3\], which holds no block"),
        (text_of((0, 0)), "holds no block"),
        (text_of((3, 1)), "holds no block"),
        (text_of((-1, 2)), "holds no block"),
        (text_of((0, 3), (2, 4)), "repeated or reordered"),
        (text_of((2, 3), (0, 1)), "repeated or reordered"),
        (text_of((0, 10**9)), "further than any model"),
        (text_of((0, 2)).replace("- 2", "- 0x" + "f" * 6000), "further than any model"),
        (text_of((0, True)), "not two whole numbers"),
        (text_of((0, 2.0)), "not two whole numbers"),
        (text_of(("0", "2")), "not two whole numbers"),
        (text_of((0, 1, 2)), "not two whole numbers"),
        (text_of((0,)), "not two whole numbers"),
        (text_of((-1, 2)).replace("- 2", "- -0x" + "f" * 6000), "overlong"),
    ],
)
def test_what_is_no_mask(text, said):
    with pytest.raises(UsageError, match=said):
        from_mergekit(text, 10)


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"sources": [SOURCE, SOURCE]}, "not exactly one"),
        ({"sources": []}, "not exactly one"),
        ({"sources": SOURCE}, "not exactly one"),
        ({"sources": [{"model": "m"}]}, "has no layer_range"),
        ({"sources": [{**SOURCE, "model": None}]}, "has no model"),
        ({"sources": [{**SOURCE, "parameters": {"scale": 0}}]}, "sets 'parameters'"),
        ({"sources": [SOURCE], "residual_weight": 0.1}, "sets 'residual_weight'"),
    ],
)
def test_what_is_no_slice(part, said):
    text = yaml.safe_dump({"slices": [part], "merge_method": "passthrough"})
    with pytest.raises(UsageError, match=said):
        from_mergekit(text, 10)


def test_two_models():
    text = text_of((0, 2), (3, 4)).replace("org/name", "other", 1)
    with pytest.raises(UsageError, match="layers of two models, 'other' and 'org/name'"):
        from_mergekit(text, 10)


def test_aliases_do_not_fill_the_message():
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n"
    for name, inner in zip("bcdefghi", "abcdefgh", strict=True):
        bomb += f"{name}: &{name} [{','.join(['*' + inner] * 9)}]\n"
    bomb += "slices: *i\nmerge_method: passthrough\n"
    with pytest.raises(UsageError) as caught:
        from_mergekit(bomb, 10)
    assert len(str(caught.value)) < 3000


@given(st.text())
def test_any_text_is_read_or_refused(text):
    with pytest.raises(UsageError):
        from_mergekit(text, 10)
