"""Quantised checkpoints are carried over byte for byte, and their settings name the new blocks."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

import shoal
from shoal.core.errors import UnsupportedModelError, UsageError
from shoal.core.mask import Mask, Site
from shoal.core.plan import ModelRef, Plan
from shoal.models.load import load_dense
from shoal.models.source import resolve
from shoal.surgery.export import export_files
from shoal.surgery.quantised import Renumbering, module_names
from shoal.surgery.stored import read_header
from shoal.testing.tiny import save_tiny

MASK = Mask.of(6, [1, 3])
NEW = {0: 0, 2: 1, 4: 2, 5: 3}
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def numbers(shape, dtype):
    generator = torch.Generator().manual_seed(len(shape) + sum(shape))
    found = torch.randint(0, 100, shape, generator=generator)
    return (found.float() / 10).to(dtype) if dtype.is_floating_point else found.to(dtype)


def gptq(name, weight):
    out, inner = weight.shape
    return {
        f"{name}.qweight": numbers((inner // 8, out), torch.int32),
        f"{name}.qzeros": numbers((1, out // 8), torch.int32),
        f"{name}.scales": numbers((1, out), torch.float16),
        f"{name}.g_idx": torch.arange(inner, dtype=torch.int32),
    }


def awq(name, weight):
    out, inner = weight.shape
    return {
        f"{name}.qweight": numbers((inner, out // 8), torch.int32),
        f"{name}.qzeros": numbers((1, out // 8), torch.int32),
        f"{name}.scales": numbers((1, out), torch.float16),
    }


def bitsandbytes(name, weight):
    return {
        f"{name}.weight": numbers((weight.numel() // 2, 1), torch.uint8),
        f"{name}.weight.absmax": numbers((weight.numel() // 64,), torch.uint8),
        f"{name}.weight.quant_map": numbers((16,), torch.float32),
        f"{name}.weight.nested_absmax": numbers((1,), torch.float32),
        f"{name}.weight.nested_quant_map": numbers((256,), torch.float32),
        f"{name}.weight.quant_state.bitsandbytes__nf4": numbers((97,), torch.uint8),
    }


def fp8(name, weight):
    return {
        f"{name}.weight": numbers(tuple(weight.shape), torch.float8_e4m3fn),
        f"{name}.weight_scale_inv": numbers((1, 1), torch.float32),
    }


def compressed(name, weight):
    out, inner = weight.shape
    return {
        f"{name}.weight_packed": numbers((out, inner // 8), torch.int32),
        f"{name}.weight_scale": numbers((out, 1), torch.bfloat16),
        f"{name}.weight_shape": torch.tensor([out, inner]),
    }


def here(*names):
    """The names in the dense model, and in the pruned one."""
    before = [n.format(i) for n in names for i in range(6)]
    return before, [n.format(NEW[i]) for n in names for i in range(6) if i in NEW]


GATES, GATES_AFTER = here("model.layers.{}.mlp.gate_proj")

METHODS = {
    "gptq": (
        gptq,
        {
            "quant_method": "gptq",
            "bits": 4,
            "group_size": 128,
            "meta": {"quantizer": ["gptqmodel:2.2.0"], "uri": "https://github.com/x/y.2.3"},
            "modules_in_block_to_quantize": [["self_attn.q_proj"], ["mlp.down_proj"]],
            "dynamic": {
                r"-:model\.layers\.1\..*": {},
                r"+:model\.layers\.4\.mlp.*": {"bits": 8},
                r"+:.*\.5\..*down.*": {"bits": 8},
                r"+:.*o_proj.*": {"bits": 8},
            },
        },
        {
            "dynamic": {
                r"+:model\.layers\.2\.mlp.*": {"bits": 8},
                r"+:.*\.3\..*down.*": {"bits": 8},
                r"+:.*o_proj.*": {"bits": 8},
            }
        },
    ),
    "awq": (
        awq,
        {
            "quant_method": "awq",
            "bits": 4,
            "version": "gemm",
            "modules_to_not_convert": ["lm_head", "model.layers.3.mlp", "model.layers.5", "o_proj"],
        },
        {"modules_to_not_convert": ["lm_head", "model.layers.3", "o_proj"]},
    ),
    "bitsandbytes": (
        bitsandbytes,
        {
            "quant_method": "bitsandbytes",
            "load_in_4bit": True,
            "bnb_4bit_quant_type": "nf4",
            "llm_int8_skip_modules": ["lm_head", "model.layers.2.mlp.down_proj"],
        },
        {"llm_int8_skip_modules": ["lm_head", "model.layers.1.mlp.down_proj"]},
    ),
    "fp8": (
        fp8,
        {
            "quant_method": "fp8",
            "weight_block_size": [128, 128],
            "modules_to_not_convert": ["lm_head", *GATES],
        },
        {"modules_to_not_convert": ["lm_head", *GATES_AFTER]},
    ),
    "compressed-tensors": (
        compressed,
        {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "ignore": ["lm_head", *GATES, "re:.*self_attn.*", r"re:model\.layers\.4\.mlp.*"],
            "config_groups": {
                "group_0": {"targets": ["Linear"], "weights": {"num_bits": 4}},
                "group_1": {"targets": [r"re:.*layers\.0\..*down_proj"], "weights": None},
            },
        },
        {
            "ignore": ["lm_head", *GATES_AFTER, "re:.*self_attn.*", r"re:model\.layers\.2\.mlp.*"],
        },
    ),
}


def quantise(folder, pack, settings):
    """Replace the linear layers of a checkpoint by packed ones."""
    tensors = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        stem = name.removesuffix(".weight")
        packed = stem.rpartition(".")[2] in LINEAR
        tensors |= pack(stem, tensor) if packed else {name: tensor.half()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config |= {"quantization_config": settings, "dtype": "float16"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "quantize_config.json").write_text(json.dumps(settings))
    return folder


def raw(file):
    data = file.read_bytes()
    return {
        t.name: (t.dtype, t.shape, data[t.offset : t.offset + t.size]) for t in read_header(file)
    }


@pytest.mark.parametrize("method", METHODS)
def test_tensors_are_carried_over_and_settings_renumbered(method, tmp_path):
    pack, settings, edited = METHODS[method]
    folder = quantise(save_tiny("llama", tmp_path / "dense"), pack, settings)
    report = export_files(resolve(str(folder)), MASK, tmp_path / "out")
    assert report.check == "structure"
    assert f"quantised ({method})" in report.check_note
    before, after = (raw(d / "model.safetensors") for d in (folder, tmp_path / "out"))
    expected = {}
    for name, value in before.items():
        parts = name.split(".")
        if parts[1] == "layers":
            if int(parts[2]) not in NEW:
                continue
            parts[2] = str(NEW[int(parts[2])])
        expected[".".join(parts)] = value
    assert after == expected
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config["num_hidden_layers"] == 4
    assert config["quantization_config"] == settings | edited
    beside = json.loads((tmp_path / "out/quantize_config.json").read_text())
    assert beside == settings | edited
    card = (tmp_path / "out/README.md").read_text()
    assert f"quantised ({method})" in card
    assert "was not run" in card


def test_a_plan_of_the_unquantised_model_is_exported_from_quantised_files(tmp_path):
    folder = quantise(save_tiny("llama", tmp_path / "dense"), *METHODS["gptq"][:2])
    plan = Plan(model=ModelRef(id="org/unquantised", fingerprint="x"), mask=MASK)
    with pytest.raises(UsageError, match="--any-model"):
        shoal.export(str(folder), plan, tmp_path / "out")
    report = shoal.export(str(folder), plan, tmp_path / "out", any_model=True)
    assert report.check == "structure"
    with pytest.raises(UsageError, match="no full check"):
        shoal.export(str(folder), plan, tmp_path / "full", any_model=True, check="full")
    mask = Mask(6, frozenset({Site.parse("1.mlp")}))
    with pytest.raises(UnsupportedModelError, match="whole blocks only"):
        shoal.export(str(folder), mask, tmp_path / "parts")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dense", "out"]


def test_running_a_quantised_model_is_refused_with_the_way_out(tmp_path):
    folder = quantise(save_tiny("llama", tmp_path / "dense"), *METHODS["awq"][:2])
    with pytest.raises(UnsupportedModelError, match=r"quantised \(awq\).*--any-model"):
        load_dense(str(folder))


@pytest.mark.parametrize("damage", ["module", "block"])
def test_missing_packed_tensors_are_noticed(damage, tmp_path):
    folder = quantise(save_tiny("llama", tmp_path / "dense"), *METHODS["gptq"][:2])
    file = folder / "model.safetensors"
    gone = {"module": "layers.4.mlp.up_proj.", "block": "layers.5.mlp."}[damage]
    kept = {n: t for n, t in load_file(file).items() if gone not in n}
    save_file(kept, file, metadata={"format": "pt"})
    with pytest.raises(UsageError, match=r"missing \(\d such tensors\)"):
        export_files(resolve(str(folder)), MASK, tmp_path / "out")
    assert not (tmp_path / "out").exists()


PARTS = ("self_attn.q_proj", "mlp.gate", "mlp.experts.0.up_proj", "mlp.experts.4.up_proj")
NAMES = [f"model.layers.{i}.{part}.weight" for i in range(12) for part in PARTS]


def renumbering(removed):
    kept = [i for i in range(12) if i not in removed]

    def rename(name):
        parts = name.split(".")
        if parts[:2] != ["model", "layers"] or len(parts) < 3:
            return name
        if int(parts[2]) not in kept:
            return None
        return ".".join([*parts[:2], str(kept.index(int(parts[2]))), *parts[3:]])

    more = ("lm_head", "vision.layers.3.mlp", "vision.blocks.3")
    return Renumbering(rename, module_names(NAMES, more), ("model.layers",))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["model.layers.1"], ["model.layers.1"]),
        (["model.layers.10.mlp"], ["model.layers.8.mlp"]),
        (["model.layers.2"], []),
        (["model.layers.2.mlp.gate", "model.layers.3.mlp.gate"], ["model.layers.2.mlp.gate"]),
        (["layers.5.mlp.gate"], ["layers.4.mlp.gate"]),
        (["vision.layers.3.mlp", "vision.blocks.3"], ["vision.layers.3.mlp", "vision.blocks.3"]),
        (["model.layers.11.mlp.experts.4.up_proj"], ["model.layers.9.mlp.experts.4.up_proj"]),
        (["experts.4.up_proj", "gate"], ["experts.4.up_proj", "gate"]),
        (["*self_attn*"], ["*self_attn*"]),
        ([r"re:.*layers\.8\..*gate"], [r"re:.*layers\.6\..*gate"]),
        ([r"re:.*layers\.\d+\.mlp\.gate$"], [r"re:.*layers\.\d+\.mlp\.gate$"]),
        ([r"re:.*layers\.[01]\..*"], [r"re:.*layers\.[01]\..*"]),
    ],
)
def test_entries_mean_the_same_modules_afterwards(before, after):
    # Blocks 2 and 7 go.
    settings = {"quant_method": "x", "modules_to_not_convert": before}
    assert renumbering({2, 7}).settings(settings)["modules_to_not_convert"] == after


@pytest.mark.parametrize(
    "entry",
    [
        r"re:.*layers\.[3-5]\..*",
        r"re:.*layers\.(4|5)\.mlp.*",
        r"re:.*layers\.1\d\..*",
        r".*\.4\..*up.*",
    ],
)
def test_patterns_over_indices_are_refused(entry):
    settings = {"quant_method": "x", "dynamic": {entry: {"bits": 8}}}
    with pytest.raises(UnsupportedModelError, match=r"cannot be renumbered") as error:
        renumbering({2, 7}).settings(settings)
    assert entry in str(error.value)
    assert "dynamic" in str(error.value)


def test_a_pattern_that_cannot_be_renumbered_stops_the_export_before_it_writes(tmp_path):
    settings = METHODS["awq"][1] | {"modules_to_not_convert": ["model.layers.[2-4].mlp"]}
    folder = quantise(save_tiny("llama", tmp_path / "dense"), awq, settings)
    with pytest.raises(UnsupportedModelError, match=r"model\.layers\.\[2-4\]\.mlp"):
        export_files(resolve(str(folder)), MASK, tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["dense"]
