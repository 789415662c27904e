"""Recognising a mask's file by its content, whatever it is called."""

import json
import subprocess
import sys
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig

from shoal.core.errors import UsageError
from shoal.core.mask import Mask
from shoal.core.plan import ModelRef, Plan
from shoal.surgery.interop import FORMATS, LARGEST_FILE, Dense, read_any

CONFIG = LlamaConfig(
    hidden_size=64, intermediate_size=256, num_attention_heads=4, num_hidden_layers=6
)
DENSE = Dense("org/name", "bfloat16", CONFIG, {"layer_types": "sliced"})
MASK = Mask.of(6, [1, 4])


def plan(mask=MASK):
    return Plan(model=ModelRef(id="m", fingerprint="f"), mask=mask)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("depth", [None, 6])
def test_every_format_is_recognised(tmp_path, name, depth):
    file = tmp_path / "anything.bin"
    file.write_text(FORMATS[name].write(MASK, DENSE))
    assert read_any(file, depth) == MASK
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert read_any(file, depth) == MASK


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_says_what_it_is(name):
    known = FORMATS[name]
    text = known.write(MASK, DENSE)
    assert known.name == name
    assert known.summary
    assert "\n" not in known.summary
    assert known.read(text, 6) == MASK
    assert [other for other in FORMATS if FORMATS[other].matches(text)] == [name]


@pytest.mark.parametrize("name", FORMATS)
def test_a_folder_holds_it_under_its_usual_name(tmp_path, name):
    (tmp_path / FORMATS[name].file_name).write_text(FORMATS[name].write(MASK, DENSE))
    assert read_any(tmp_path) == MASK


@pytest.mark.parametrize("name", ["plan.json", "shoal_plan.json"])
def test_a_plan_is_read_and_comes_first_in_a_folder(tmp_path, name):
    (tmp_path / "config.json").write_text(FORMATS["nemotron-nas"].write(Mask.of(6, [2]), DENSE))
    plan().save(tmp_path / name)
    assert read_any(tmp_path / name) == MASK
    assert read_any(tmp_path, 6) == MASK


def test_another_depth_is_refused(tmp_path):
    plan().save(tmp_path / "p")
    with pytest.raises(UsageError, match="for 6 blocks, but the model has 7"):
        read_any(tmp_path / "p", 7)
    for known in FORMATS.values():
        (tmp_path / "f").write_text(known.write(MASK, DENSE))
        with pytest.raises(UsageError, match=r"/f: .*7"):
            read_any(tmp_path / "f", 7)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b" \n\t\n", "is empty"),
        (b"none\0\n", "NUL"),
        (b"\xff\xfe\x00", "no text in UTF-8"),
        (b"hello", "none of the files that state a mask. Known are mergekit"),
        (b"[1, 2]", "none of the files"),
        (b"{}", "none of the files"),
        (b'{"architectures": ["LlamaForCausalLM"]}', "none of the files"),
        (b'{"block_configs": ', "no JSON"),
        (b"{" * 100_000, "no JSON"),
        (b'{"a":' * 100_000, "no JSON"),
        (b'{"block_configs": []}', "needs a list"),
        (b'{"schema_version": 99}', "schema version 99"),
        (b'{"schema_version": 1}', "is not a plan"),
        (b"slices: [", "no YAML"),
        (b"merge_method: slerp\n", "has no slices"),
        (b"attn\nnothing\n", "line 2"),
    ],
)
def test_other_content_is_refused(tmp_path, content, said):
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(UsageError, match=said) as caught:
        read_any(tmp_path / "f")
    assert str(caught.value).count(str(tmp_path / "f")) == 1


def test_what_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="there is no file"):
        read_any(tmp_path / "nothing")
    with pytest.raises(UsageError, match=r"holds none of plan\.json, .*mergekit\.yaml"):
        read_any(tmp_path)


def test_weights_are_not_read(tmp_path):
    with (tmp_path / "model.safetensors").open("wb") as out:
        out.truncate(LARGEST_FILE + 1)
    with pytest.raises(UsageError, match="too large"):
        read_any(tmp_path / "model.safetensors")


def test_the_nemotron_form_needs_a_config():
    with pytest.raises(UsageError, match="needs the dense model's config"):
        FORMATS["nemotron-nas"].write(MASK, Dense("m", "bfloat16"))


@given(
    data=st.one_of(
        st.binary(), st.text().map(str.encode), st.from_regex("(?s)slices:.*|[{].*").map(str.encode)
    )
)
def test_any_content_is_read_or_refused(tmp_path_factory, data):
    file = tmp_path_factory.getbasetemp() / "any"
    file.write_bytes(data)
    with suppress(UsageError):
        assert read_any(file, 6).depth == 6


def test_it_imports_no_torch():
    code = (
        "import sys, shoal.surgery.interop\n"
        "print([m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.replace("'", '"')) == []
