"""Exporting from files: the model is never loaded, and the result is the loaded export's."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import shoal
from shoal.core.errors import UnsupportedModelError, UsageError, VerificationError
from shoal.core.mask import Mask, Site
from shoal.core.plan import ModelRef, Plan
from shoal.models.load import load_dense
from shoal.models.masked import muted
from shoal.models.source import resolve
from shoal.surgery import checking, verify
from shoal.surgery.export import export, export_files
from shoal.surgery.probe import logits_of, probe_tokens
from shoal.surgery.tensors import Renamer
from shoal.testing.tiny import TINY_FAMILIES, save_tiny, tiny_model

MASK = Mask.of(6, [1, 3])


def never(*args, **kwargs):
    raise AssertionError("must not be called")


@pytest.fixture
def folder(tmp_path):
    return save_tiny("llama", tmp_path / "dense")


def add(folder, **tensors):
    found = load_file(folder / "model.safetensors")
    save_file(found | tensors, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_the_result_is_that_of_the_loaded_model(family, tmp_path, monkeypatch):
    source = resolve(str(save_tiny(family, tmp_path / "dense")))
    by_model = export(load_dense(source), MASK, tmp_path / "model")
    monkeypatch.setattr(checking, "load_dense", never)
    by_files = export_files(source, MASK, tmp_path / "files", check="structure")
    names = sorted(p.name for p in (tmp_path / "model").iterdir())
    assert names == sorted(p.name for p in (tmp_path / "files").iterdir())
    for name in names:
        if name != "README.md":
            first, second = (tmp_path / d / name for d in ("model", "files"))
            assert first.read_bytes() == second.read_bytes(), name
    assert (by_model.check, by_files.check) == ("full", "structure")
    assert by_files.route == "file"
    assert by_files.max_logit_difference is None
    assert by_files.checks == {}
    assert by_files.parameters_before == by_model.parameters_before
    assert by_files.parameters_after == by_model.parameters_after
    assert "was not run" in (tmp_path / "files/README.md").read_text()


def test_auto_runs_the_model_where_it_fits(folder, tmp_path):
    report = export_files(resolve(str(folder)), MASK, tmp_path / "out")
    assert report.check == "full"
    assert report.check_note == "run in memory on cpu"
    assert report.max_logit_difference < 1e-5


@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen3_moe", "gemma2", "granitemoehybrid"])
def test_what_does_not_fit_runs_from_the_disk(family, tmp_path, monkeypatch):
    pytest.importorskip("accelerate")
    folder = save_tiny(family, tmp_path / "dense")
    monkeypatch.setattr(checking, "free_memory", lambda device: 0)
    monkeypatch.setattr(checking, "load_dense", never)
    report = export_files(resolve(str(folder)), MASK, tmp_path / "out")
    assert report.check == "full"
    assert "weights on the disk" in report.check_note
    assert report.checks["max_logit_difference"] < 1e-5
    assert report.checks["same_tokens_cached"]
    assert not any(p.name.startswith(".") for p in (tmp_path / "out").iterdir())


def test_a_wrong_result_is_seen_from_the_disk_too(folder, tmp_path, monkeypatch):
    pytest.importorskip("accelerate")
    real = Renamer.__call__

    def swapped(self, name):
        new = real(self, name)
        names = {"up_proj": "gate_proj", "gate_proj": "up_proj"}
        for old, other in names.items():
            if new and f".{old}." in new:
                return new.replace(old, other)
        return new

    monkeypatch.setattr(checking, "free_memory", lambda device: 0)
    monkeypatch.setattr("shoal.surgery.weights.Renamer.__call__", swapped)
    with pytest.raises(VerificationError, match="not the masked dense model"):
        export_files(resolve(str(folder)), MASK, tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["dense"]


def test_without_accelerate_the_structure_is_checked_and_a_notice_says_what_to_do(
    folder, tmp_path, monkeypatch
):
    monkeypatch.setattr(checking, "free_memory", lambda device: 0)
    monkeypatch.setattr(checking, "can_offload", lambda: False)
    report = export_files(resolve(str(folder)), MASK, tmp_path / "out")
    assert report.check == "structure"
    assert "0.0 GB are free" in report.check_note
    assert "--check full" in report.check_note
    assert "accelerate" in report.check_note
    asked = export_files(resolve(str(folder)), MASK, tmp_path / "asked", check="full")
    assert asked.check == "full"


def test_a_model_that_does_not_run_from_the_disk_falls_back(folder, tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise NotImplementedError("Cannot copy out of meta tensor")

    monkeypatch.setattr(checking, "free_memory", lambda device: 0)
    monkeypatch.setattr(checking, "can_offload", lambda: True)
    monkeypatch.setattr(checking, "load_offloaded", fail)
    report = export_files(resolve(str(folder)), MASK, tmp_path / "out")
    assert report.check == "structure"
    assert "Cannot copy out of meta tensor" in report.check_note


def test_no_check(folder, tmp_path):
    report = export_files(resolve(str(folder)), MASK, tmp_path / "out", check="none")
    assert report.check == "none"
    assert "not checked" in (tmp_path / "out/README.md").read_text()
    with pytest.raises(UsageError, match='unknown check "fully"'):
        export_files(resolve(str(folder)), MASK, tmp_path / "no", check="fully")


def test_a_loaded_model_may_be_checked_less(folder, tmp_path, monkeypatch):
    dense = load_dense(str(folder))
    monkeypatch.setattr(verify, "logits_of", never)
    assert export(dense, MASK, tmp_path / "a", check="structure").check == "structure"
    assert export(dense, MASK, tmp_path / "b", check=False).check == "none"
    objects = load_dense(tiny_model("mixtral"))
    assert export(objects, MASK, tmp_path / "c", check="structure").route == "memory"


@pytest.mark.parametrize("stored", [True, False])
def test_tied_weights_stored_or_not(stored, tmp_path):
    model = tiny_model("qwen2")
    model.config.tie_word_embeddings = True
    model.tie_weights()
    folder = tmp_path / "dense"
    model.save_pretrained(folder)
    head = "lm_head.weight"
    assert head not in load_file(folder / "model.safetensors")
    if stored:
        add(folder, **{head: model.get_input_embeddings().weight.detach().clone()})
    report = export_files(resolve(str(folder)), MASK, tmp_path / "out")
    assert report.check == "full"
    assert (head in load_file(tmp_path / "out/model.safetensors")) is stored


def test_heads_and_towers_besides_the_model_are_carried_over(folder, tmp_path, caplog):
    extra = {
        "value_head.weight": torch.randn(3, 32),
        "visual.blocks.3.mlp.weight": torch.randn(2, 2),
        "model.layers.6.eh_proj.weight": torch.zeros(2, 2),
        "mtp.layers.0.mlp.weight": torch.zeros(2, 2),
    }
    add(folder, **extra)
    report = export_files(resolve(str(folder)), MASK, tmp_path / "out")
    assert report.check == "full"
    found = load_file(tmp_path / "out/model.safetensors")
    for name in ("value_head.weight", "visual.blocks.3.mlp.weight"):
        assert torch.equal(found[name], extra[name])
    assert not any("eh_proj" in n or n.startswith("mtp.") for n in found)


@pytest.mark.parametrize("damage", ["missing", "shape", "twice"])
def test_damaged_sources_are_refused_before_anything_is_written(damage, folder, tmp_path):
    file = folder / "model.safetensors"
    tensors = load_file(file)
    name = "model.layers.5.mlp.up_proj.weight"
    if damage == "missing":
        del tensors[name]
    elif damage == "shape":
        tensors[name] = tensors[name][:3].clone()
    else:
        save_file({name: tensors[name]}, folder / "model-2.safetensors")
        weight_map = dict.fromkeys(tensors, "model-1.safetensors") | {name: "model-2.safetensors"}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
        file.unlink()
        file = folder / "model-1.safetensors"
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(UsageError, match=r"up_proj\.weight"):
        export_files(resolve(str(folder)), MASK, tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["dense"]


def test_parts_of_blocks_need_the_model(folder, tmp_path):
    mask = Mask(6, frozenset({Site.parse("1.mlp"), Site.parse("2.attn")}))
    with pytest.raises(UnsupportedModelError, match="removes parts of blocks"):
        export_files(resolve(str(folder)), mask, tmp_path / "out")
    report = shoal.export(str(folder), mask, tmp_path / "out")
    assert report.check == "full"
    assert report.format == "fuse"


def test_the_python_call_takes_the_files_and_checks_the_plan(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("shoal.api.files.load_dense", never)
    source = resolve(str(folder))
    ref = ModelRef(id=str(folder), fingerprint=source.fingerprint())
    report = shoal.export(str(folder), Plan(model=ref, mask=MASK), tmp_path / "out")
    assert report.check == "full"
    assert Plan.load(tmp_path / "out").mask == MASK
    other = Plan(model=ref.model_copy(update={"fingerprint": "x"}), mask=MASK)
    with pytest.raises(UsageError, match="another checkpoint"):
        shoal.export(str(folder), other, tmp_path / "other")
    assert shoal.export(str(folder), other, tmp_path / "other", any_model=True).removed
    with pytest.raises(UsageError, match="model with 5 blocks"):
        shoal.export(str(folder), Mask.of(5, [1]), tmp_path / "five")
    with pytest.raises(UsageError, match="removes nothing"):
        shoal.export(str(folder), Mask.dense(6), tmp_path / "none")


def test_other_names_in_the_files_than_in_the_model(tmp_path):
    folder = save_tiny("gpt2", tmp_path / "dense")
    tensors = load_file(folder / "model.safetensors")
    bare = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    bare |= {f"h.{i}.attn.bias": torch.ones(1, 1, 8, 8) for i in range(6)}
    save_file(bare, folder / "model.safetensors", metadata={"format": "pt"})
    report = export_files(resolve(str(folder)), MASK, tmp_path / "out")
    assert report.check == "full"
    model, info = AutoModelForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(info.values())
    dense = load_dense(str(folder))
    tokens = probe_tokens(dense, 2)
    with muted(dense.blocks, MASK):
        expected = logits_of(dense.module, tokens)
    assert torch.allclose(logits_of(model.eval(), tokens), expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_memory_stays_bounded_whatever_the_size():
    script = Path(__file__).parents[2] / "benchmarks/export.py"
    sizes = ["--gb", "0.6", "--blocks", "12", "--width", "1024", "--remove", "3", "--repeats", "1"]
    done = subprocess.run(
        [sys.executable, str(script), *sizes], capture_output=True, text=True, check=True
    )
    rows = [line for line in done.stdout.splitlines() if line.startswith("shoal export")]
    peaks = [int(row[34:].split()[2]) for row in rows]
    assert len(peaks) == 2
    # Most of it is the libraries themselves; the checkpoint alone is 600 MB.
    assert max(peaks) < 600
