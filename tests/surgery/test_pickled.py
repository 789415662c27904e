"""Old pickled checkpoints: the same result as from safetensors, and nothing in them is run."""

import json
import os
import pickle

import pytest
import torch
from safetensors.torch import load_file

from shoal.core.errors import UsageError
from shoal.core.mask import Mask
from shoal.models.load import load_dense
from shoal.models.pickled import offsets, outline
from shoal.models.source import resolve
from shoal.surgery import stored
from shoal.surgery.export import export, export_files
from shoal.surgery.stored import read, read_pickled
from shoal.testing.tiny import save_tiny

MASK = Mask.of(6, [1, 3])


class Evil:
    """Runs a command when it is unpickled the ordinary way."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


def pickled(folder, *, files=1, zipped=True, extra=None):
    """Turn a safetensors folder into a pickled one."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    tensors |= extra or {}
    if files == 1:
        torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
        return folder
    names = list(tensors)
    weight_map = {}
    for i in range(files):
        file = f"pytorch_model-{i + 1:05d}-of-{files:05d}.bin"
        part = names[i::files]
        torch.save({n: tensors[n] for n in part}, folder / file)
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    return folder


@pytest.mark.parametrize("form", ["one file", "three files", "before 1.6"])
def test_the_result_is_that_of_safetensors(form, tmp_path):
    export_files(resolve(str(save_tiny("qwen2", tmp_path / "a"))), MASK, tmp_path / "right")
    files, zipped = {"one file": (1, True), "three files": (3, True), "before 1.6": (1, False)}[
        form
    ]
    folder = pickled(save_tiny("qwen2", tmp_path / "b"), files=files, zipped=zipped)
    source = resolve(str(folder))
    report = export_files(source, MASK, tmp_path / "out")
    assert (report.check, report.route) == ("full", "file")
    right, found = (load_file(tmp_path / d / "model.safetensors") for d in ("right", "out"))
    assert right.keys() == found.keys()
    assert all(torch.equal(right[n], found[n]) for n in right)
    assert not list((tmp_path / "out").glob("*.bin"))
    loaded = export(load_dense(source), MASK, tmp_path / "loaded")
    assert loaded.max_logit_difference < 1e-5


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_two_names_of_one_tensor(family, tmp_path):
    folder = save_tiny(family, tmp_path / "dense")
    tensors = load_file(folder / "model.safetensors")
    name = next(n for n in tensors if "wte" in n or "embed_tokens" in n)
    head = "lm_head.weight"
    tied = head not in tensors
    (folder / "model.safetensors").unlink()
    torch.save(tensors | {head: tensors[name]}, folder / "pytorch_model.bin")
    report = export_files(resolve(str(folder)), MASK, tmp_path / "out")
    assert report.check == "full"
    found = load_file(tmp_path / "out/model.safetensors")
    # Tied by the config it is kept once; else both names keep what they name.
    assert (head in found) is not tied
    assert torch.equal(found.get(head, found[name]), tensors[name])


def test_views_are_read_and_plain_tensors_are_copied(tmp_path):
    base = torch.arange(24.0).reshape(4, 6)
    tensors = {"plain": base, "rows": base[1:3], "turned": base.t(), "bf": base.bfloat16()}
    torch.save(tensors, tmp_path / "x.bin")
    found = read_pickled(tmp_path / "x.bin")
    assert {t.name: t.copied for t in found} == {
        "plain": True, "rows": True, "turned": False, "bf": True,
    }  # fmt: skip
    assert all(torch.equal(read(t), tensors[t.name]) for t in found)
    assert offsets(tmp_path / "x.bin", outline(tmp_path / "x.bin")).keys() == {
        "plain",
        "rows",
        "bf",
    }
    stored.close_files()


@pytest.mark.parametrize("form", ["zip", "old", "plain pickle"])
def test_a_pickle_that_would_run_something_is_refused_and_not_run(form, tmp_path):
    mark = tmp_path / "was-run"
    folder = save_tiny("llama", tmp_path / "dense")
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    file = folder / "pytorch_model.bin"
    if form == "plain pickle":
        file.write_bytes(pickle.dumps(Evil(mark)))
    else:
        torch.save(tensors | {"x": Evil(mark)}, file, _use_new_zipfile_serialization=form == "zip")
    source = resolve(str(folder))
    for attempt in (
        lambda: export_files(source, MASK, tmp_path / "out"),
        lambda: load_dense(source),
    ):
        with pytest.raises(UsageError, match=r"could run code|no pickled checkpoint"):
            attempt()
    assert not mark.exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dense"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"a": torch.ones(2), "step": 3}, 'holds "step", a int'),
        ({"model": {"a": torch.ones(2)}}, 'holds "model", a dict'),
        ({3: torch.ones(2)}, "no ordinary tensor"),
        ({"a": torch.ones(2).to_sparse()}, "no ordinary tensor"),
        (torch.ones(2), "holds a Tensor"),
    ],
)
def test_anything_besides_named_tensors_is_refused(content, message, tmp_path):
    torch.save(content, tmp_path / "x.bin")
    with pytest.raises(UsageError, match=message):
        outline(tmp_path / "x.bin")


@pytest.mark.parametrize("damage", ["empty", "garbage", "cut"])
def test_damaged_files_are_refused(damage, tmp_path):
    file = tmp_path / "x.bin"
    torch.save({"a": torch.ones(100)}, file)
    whole = file.read_bytes()
    file.write_bytes({"empty": b"", "garbage": b"\x00" * 99, "cut": whole[:-200]}[damage])
    with pytest.raises(UsageError, match=r"damaged|something besides tensors"):
        outline(file)
