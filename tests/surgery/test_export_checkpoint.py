"""Exporting: both routes over all families, layouts of hub files, and what is refused."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from shoal.core.errors import UnsupportedModelError, UsageError
from shoal.core.mask import Mask
from shoal.core.plan import ModelRef, Plan
from shoal.models.load import load_dense
from shoal.models.masked import muted
from shoal.surgery.card import Result
from shoal.surgery.export import export
from shoal.surgery.probe import greedy, logits_of, probe_tokens
from shoal.testing.tiny import TINY_FAMILIES, save_tiny, tiny_model

MASK = Mask.of(6, [1, 3])


def edit_json(path, change):
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def check_equal(folder, dense, mask):
    """Independent of the export's own check."""
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dense.dtype, output_loading_info=True
    )
    assert not any(info.values())
    model.eval()
    tokens = probe_tokens(dense, 2, 8)
    with muted(dense.blocks, mask):
        expected = logits_of(dense.module, tokens)
        continued = greedy(dense.module, tokens, 4, use_cache=True)
    assert (logits_of(model, tokens) - expected).abs().max() < 1e-5
    assert torch.equal(greedy(model, tokens, 4, use_cache=True), continued)


@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_file_route_reloads_equal(family, tmp_path):
    dense = load_dense(str(save_tiny(family, tmp_path / "dense")))
    report = export(dense, MASK, tmp_path / "out")
    assert report.route == "file"
    assert report.shards == 1
    assert report.kept == (0, 2, 4, 5)
    assert report.removed == ("1", "3")
    assert report.max_logit_difference < 1e-5
    assert report.checks["same_tokens_cached"]
    assert report.checks["same_tokens_uncached"]
    assert report.parameters_after < report.parameters_before
    assert report.bytes == (tmp_path / "out/model.safetensors").stat().st_size
    check_equal(tmp_path / "out", dense, MASK)


@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_memory_route_reloads_equal(family, tmp_path, tiny_dense):
    dense = tiny_dense(family)
    mask = Mask.of(6, [0, 5])
    report = export(dense, mask, tmp_path / "out")
    assert report.route == "memory"
    assert report.max_logit_difference < 1e-5
    check_equal(tmp_path / "out", dense, mask)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer("hello").input_ids == dense.tokenizer("hello").input_ids


@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen3_moe", "gemma2"])
def test_many_shards_hold_the_source_tensors_bit_for_bit(family, tmp_path):
    folder = save_tiny(family, tmp_path / "dense", max_shard_size=30_000)
    report = export(load_dense(str(folder)), MASK, tmp_path / "out", max_shard_bytes=20_000)
    source, found = {}, {}
    for file in folder.glob("*.safetensors"):
        source |= load_file(file)
    for file in (tmp_path / "out").glob("*.safetensors"):
        found |= load_file(file)
    index = json.loads((tmp_path / "out/model.safetensors.index.json").read_text())
    assert report.shards == len(set(index["weight_map"].values())) > 3
    assert index["weight_map"].keys() == found.keys()
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in found.values())
    origin = {0: 0, 1: 2, 2: 4, 3: 5}
    for name, tensor in found.items():
        parts = name.split(".")
        at = next((i for i, p in enumerate(parts) if p in ("layers", "h")), None)
        if at is not None:
            parts[at + 1] = str(origin[int(parts[at + 1])])
        assert torch.equal(tensor, source.pop(".".join(parts)))
    assert {n.split(".")[2] for n in source} == {"1", "3"}


def test_hub_files_without_the_base_prefix_and_with_old_buffers(tmp_path):
    folder = save_tiny("gpt2", tmp_path / "dense")
    tensors = load_file(folder / "model.safetensors")
    bare = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    bare |= {f"h.{i}.attn.bias": torch.ones(1, 1, 8, 8) for i in range(6)}
    save_file(bare, folder / "model.safetensors", metadata={"format": "pt"})
    dense = load_dense(str(folder))
    export(dense, MASK, tmp_path / "out")
    names = load_file(tmp_path / "out/model.safetensors").keys()
    assert "h.3.attn.c_attn.weight" in names
    assert "h.4.attn.c_attn.weight" not in names
    check_equal(tmp_path / "out", dense, MASK)


def test_prediction_head_beyond_the_depth_is_dropped(tmp_path):
    folder = save_tiny("deepseek_v3", tmp_path / "dense")
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.6.eh_proj.weight"] = torch.zeros(2, 2)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    edit_json(folder / "config.json", lambda c: c.update(num_nextn_predict_layers=1))
    export(load_dense(str(folder)), MASK, tmp_path / "out")
    assert not any("eh_proj" in n for n in load_file(tmp_path / "out/model.safetensors"))
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config["num_nextn_predict_layers"] == 0


@pytest.mark.parametrize(
    ("family", "gone", "added", "kinds"),
    [
        ("gemma2", ["layer_types"], {}, "sfsfsf"),
        ("qwen3", ["layer_types"], {}, "fffsss"),
        ("gemma3_text", ["layer_types"], {"sliding_window_pattern": 2}, "sfsfsf"),
        ("smollm3", ["layer_types", "no_rope_layers"], {}, "ffffff"),
        ("gpt_oss", ["layer_types"], {}, "sfsfsf"),
    ],
)
def test_old_config_without_explicit_lists(family, gone, added, kinds, tmp_path):
    folder = save_tiny(family, tmp_path / "dense")

    def age(config):
        for name in gone:
            del config[name]
        config.update(added)

    edit_json(folder / "config.json", age)
    dense = load_dense(str(folder))
    assert "".join(kind[0] for kind in dense.config.layer_types) == kinds
    export(dense, MASK, tmp_path / "out")
    written = json.loads((tmp_path / "out/config.json").read_text())
    assert "".join(kind[0] for kind in written["layer_types"]) == "".join(
        kinds[i] for i in MASK.kept
    )
    check_equal(tmp_path / "out", dense, MASK)


def test_dtype_of_the_files_stays_when_the_model_was_loaded_in_another(tmp_path):
    folder = tmp_path / "dense"
    tiny_model("llama").to(torch.bfloat16).save_pretrained(folder)
    dense = load_dense(str(folder), dtype="float32")
    export(dense, MASK, tmp_path / "out")
    assert AutoConfig.from_pretrained(tmp_path / "out").dtype == torch.bfloat16
    tensors = load_file(tmp_path / "out/model.safetensors").values()
    assert {t.dtype for t in tensors} == {torch.bfloat16}
    edit_json(folder / "config.json", lambda c: c.pop("dtype"))
    export(load_dense(str(folder), dtype="float32"), MASK, tmp_path / "out2")
    assert AutoConfig.from_pretrained(tmp_path / "out2").dtype == torch.bfloat16


def test_bfloat16_model_passes_its_check(tmp_path):
    dense = load_dense(tiny_model("qwen2").to(torch.bfloat16))
    assert export(dense, MASK, tmp_path / "out").checks["relative_logit_difference"] < 0.05


def test_nested_multimodal_model_keeps_everything_else(tmp_path):
    text = dict(
        vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=6, head_dim=8,
        num_attention_heads=4, num_key_value_heads=2, sliding_window=8, sliding_window_pattern=3,
        bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    vision = dict(
        hidden_size=16, intermediate_size=16, num_hidden_layers=6, num_attention_heads=2,
        image_size=16, patch_size=8,
    )  # fmt: skip
    config = AutoConfig.for_model(
        "gemma3",
        text_config=text,
        vision_config=vision,
        mm_tokens_per_image=4,
        image_token_index=120,
        boi_token_index=121,
        eoi_token_index=122,
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.save_pretrained(tmp_path / "dense")
    dense = load_dense(str(tmp_path / "dense"))
    for name, source in (("file", dense), ("memory", load_dense(model))):
        report = export(source, MASK, tmp_path / name)
        assert report.route == name
        before, after = (
            json.loads((tmp_path / d / "config.json").read_text()) for d in ("dense", name)
        )
        assert after["text_config"].pop("num_hidden_layers") == 4
        assert len(after["text_config"].pop("layer_types")) == 4
        for key in ("num_hidden_layers", "layer_types"):
            before["text_config"].pop(key)
        assert after == before
        check_equal(tmp_path / name, source, MASK)


def test_nothing_removed_writes_the_same_model(tmp_path):
    folder = save_tiny("llama", tmp_path / "dense")
    export(load_dense(str(folder)), Mask.dense(6), tmp_path / "out")
    found, source = (load_file(f / "model.safetensors") for f in (tmp_path / "out", folder))
    assert found.keys() == source.keys()
    assert all(torch.equal(found[n], source[n]) for n in source)


def test_sidecars_plan_and_card_are_written(tmp_path):
    folder = save_tiny("llama", tmp_path / "dense")
    (folder / "LICENSE").write_text("be nice")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "README.md").write_text("---\nlicense: other\nlicense_name: nice\n---\n# Old card\n")
    edit_json(folder / "generation_config.json", lambda c: c.update(temperature=0.3))
    dense = load_dense(str(folder))
    plan = Plan(model=ModelRef(id="x", fingerprint="y"), mask=MASK, objective="nll:demo", seed=3)
    export(dense, MASK, tmp_path / "out", plan=plan)
    out = tmp_path / "out"
    for name in ("LICENSE", "chat_template.jinja", "generation_config.json", "tokenizer.json"):
        assert (out / name).read_bytes() == (folder / name).read_bytes()
    assert Plan.load(out) == plan
    card = (out / "README.md").read_text()
    assert "license_name: nice" in card
    assert "nll:demo" in card
    assert "Old card" not in card
    assert str(tmp_path) not in card
    assert not any(str(tmp_path) in p.read_text() for p in out.glob("*.json"))
    export(dense, MASK, tmp_path / "told", results=[Result("wikitext2", 20.0, 25.0)])
    assert (
        "| wikitext2 | 20.0000 | 25.0000 | +5.0000 |" in (tmp_path / "told/README.md").read_text()
    )


def test_written_files_can_be_read_by_others(tmp_path, tiny_dense):
    export(tiny_dense("llama"), MASK, tmp_path / "out")
    modes = {p.stat().st_mode for p in (tmp_path / "out").iterdir()}
    assert len(modes) == 1


def test_foreign_plan_and_bad_shard_size_are_refused(tmp_path, tiny_dense):
    plan = Plan(model=ModelRef(id="x", fingerprint="y"), mask=Mask.of(6, [2]))
    with pytest.raises(UsageError, match=r"the plan removes -\[2\]"):
        export(tiny_dense("llama"), MASK, tmp_path / "out", plan=plan)
    with pytest.raises(UsageError, match="max_shard_bytes"):
        export(tiny_dense("llama"), MASK, tmp_path / "out", max_shard_bytes=0)
    assert not any(tmp_path.iterdir())


def test_quantised_model_is_refused(tmp_path):
    dense = load_dense(tiny_model("llama"))
    dense.config.quantization_config = {"quant_method": "gptq"}
    with pytest.raises(UnsupportedModelError, match="quantised"):
        export(dense, MASK, tmp_path / "out")
    assert not any(tmp_path.iterdir())
