"""`shoal export --format`: sub-layers in every form, and the files of other tools, both ways."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM

from shoal.core.layout import Layout
from shoal.core.mask import Mask
from shoal.core.plan import ModelRef, Plan
from shoal.models.load import load_dense
from shoal.models.masked import muted
from shoal.models.source import resolve
from shoal.surgery.interop import read_any
from shoal.testing.tiny import save_tiny, tiny_config, tiny_model

HALF, PARTS = "-[1.mlp,2.attn]", "-[1.attn,4.mlp]"


@pytest.fixture
def plan_of(tiny_folder, tmp_path):
    def write(text, folder=tiny_folder):
        source = resolve(str(folder))
        mask = Mask.parse(text, 6)
        plan = Plan(model=ModelRef(id=str(folder), fingerprint=source.fingerprint()), mask=mask)
        path = tmp_path / "plan.json"
        plan.save(path)
        return path

    return write


def agree(folder, dense_folder, text):
    dense, mask = load_dense(str(dense_folder)), Mask.parse(text, 6)
    tokens = torch.arange(4, 40)[None] % 120 + 4
    with torch.inference_mode(), muted(dense.blocks, mask, dense.branches):
        expected = dense.module(tokens).logits
    with torch.inference_mode():
        return torch.allclose(
            AutoModelForCausalLM.from_pretrained(folder)(tokens).logits, expected, atol=1e-5
        )


@pytest.mark.parametrize(
    ("text", "format", "written", "depth"),
    [
        (HALF, "auto", "fuse", 5),
        (HALF, "fuse", "fuse", 5),
        (HALF, "stock-zeroed", "stock-zeroed", 6),
        (PARTS, "auto", "stock-zeroed", 6),
        ("-[1.mlp,2.attn,4.mlp]", "auto", "fuse + zeroed", 5),
        ("-[2]", "stock", "stock", 5),
    ],
)
def test_sub_layers_in_every_form(shoal, tiny_folder, plan_of, text, format, written, depth):
    code, out, err = shoal("export", plan_of(text), "--out", "o", "--format", format)
    assert code == 0, err
    assert f"format:  {written}" in out
    assert ("zeroed:" in out) == ("zeroed" in written)
    assert json.loads(Path("o/config.json").read_text())["num_hidden_layers"] == depth
    assert agree("o", tiny_folder, text)
    card = Path("o/README.md").read_text()
    assert ("output projections" in card) == ("zeroed" in written)
    assert ("of one dense block" in card) == ("fuse" in written)


@pytest.mark.parametrize(
    ("text", "format", "message"),
    [
        (HALF, "stock", "removes parts of blocks"),
        (PARTS, "fuse", "does not pair up"),
        (HALF, "onnx", "format"),
        (HALF, "mergekit", "mergekit"),
        ("-[0.attn]", "nemotron-nas", "256"),
    ],
)
def test_what_a_form_cannot_say_is_refused(shoal, plan_of, tmp_path, text, format, message):
    code, _, err = shoal("export", plan_of(text), "--out", "o", "--format", format)
    assert code in (1, 2)
    assert message in err
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(("format", "text"), [("mergekit", "-[1,3-4]"), ("evopress", PARTS)])
def test_files_of_other_tools_go_both_ways(shoal, tiny_folder, plan_of, format, text):
    code, _, err = shoal("export", plan_of(text), "--out", "o", "--format", format)
    assert code == 0, err
    (path,) = list(Path("o").iterdir())
    assert read_any(path, 6) == Mask.parse(text, 6)
    code, _, err = shoal("export", path, "--model", tiny_folder, "--out", "back")
    assert code == 0, err
    assert agree("back", tiny_folder, text)
    code, _, err = shoal("export", path, "--out", "other")
    assert code == 2
    assert "--model" in err
    code, _, err = shoal("export", plan_of(text), "--out", "o", "--format", format)
    assert code == 2
    assert "exists" in err


@pytest.fixture
def wide(tmp_path):
    """A Llama whose widths vLLM's form can say."""
    config = tiny_config("llama")
    config.intermediate_size = 256
    from transformers import LlamaForCausalLM

    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(tmp_path / "wide")
    return tmp_path / "wide"


def test_nemotron_nas_holds_what_stays(shoal, wide, plan_of):
    text = "-[1.attn,3,4.mlp]"
    code, out, err = shoal("export", plan_of(text, wide), "--out", "o", "--format", "nemotron-nas")
    assert code == 0, err
    assert "trust-remote-code" in out
    config = json.loads(Path("o/config.json").read_text())
    assert config["model_type"] == "nemotron-nas"
    assert config["block_configs"][1]["attention"]["no_op"]
    with safe_open("o/model.safetensors", "pt") as file:
        names = set(file.keys())
    assert not any(n.startswith("model.layers.3.") for n in names)
    assert not any(n.startswith("model.layers.1.self_attn") for n in names)
    assert any(n.startswith("model.layers.1.mlp") for n in names)
    assert read_any(Path("o/config.json"), 6) == Mask.parse(text, 6)


def test_nemotron_nas_refuses_other_families(shoal, tmp_path, plan_of):
    folder = save_tiny("gemma2", tmp_path / "gemma")
    code, _, err = shoal(
        "export", plan_of("-[1.attn]", folder), "--out", "o", "--format", "nemotron-nas"
    )
    assert code == 1
    assert "gemma2" in err


def test_in_python(tmp_path):
    import shoal

    model = tiny_model("llama")
    mask = Mask.parse(PARTS, 6)
    made = shoal.export_for("evopress", model, mask, tmp_path / "drop.txt")
    assert made.path == tmp_path / "drop.txt"
    pruned = shoal.load(model, plan=made.path)
    assert len(Layout.of(mask)) == pruned.config.num_hidden_layers
