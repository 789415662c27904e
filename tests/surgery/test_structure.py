"""The structure of a written folder: everything but the numbers."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from shoal.core.errors import UsageError, VerificationError
from shoal.core.mask import Mask
from shoal.models.load import load_config
from shoal.models.skeleton import empty_model, skeleton
from shoal.models.source import resolve
from shoal.surgery.export import export_files
from shoal.surgery.memory import shallow_model
from shoal.surgery.stored import stored_tensors
from shoal.surgery.structure import check_written, coverage_of, fit_of
from shoal.testing.tiny import TINY_FAMILIES, save_tiny

MASK = Mask.of(6, [1, 3])


@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_files_fit_their_model_and_nothing_may_be_missing(family, tmp_path):
    source = resolve(str(save_tiny(family, tmp_path / "m")))
    config, tensors = load_config(source), stored_tensors(source)
    assert fit_of(empty_model(config), tensors).wrong is None
    assert coverage_of(empty_model(config), tensors).wrong is None
    for tensor in tensors[:: max(1, len(tensors) // 5)]:
        fit = fit_of(empty_model(config), [t for t in tensors if t != tensor])
        assert fit.wrong, tensor.name
    block = [t for t in tensors if ".4." in t.name]
    assert coverage_of(empty_model(config), [t for t in tensors if t not in block]).missing
    assert not fit_of(empty_model(config), tensors).unexpected


@pytest.fixture
def written(tmp_path):
    source = resolve(str(save_tiny("qwen2", tmp_path / "dense", max_shard_size=30_000)))
    export_files(source, MASK, tmp_path / "out", check="none", max_shard_bytes=20_000)
    config = load_config(source)
    return tmp_path / "out", shallow_model(skeleton(source, config), MASK)


def check(folder, shallow, planned=None):
    check_written(folder, shallow, planned, (), packed=False)


def first(folder):
    return sorted(folder.glob("*.safetensors"))[0]


def test_the_right_folder_passes(written):
    folder, shallow = written
    check(folder, shallow, stored_tensors(resolve(str(folder))))


def test_a_cut_file_is_seen(written):
    folder, shallow = written
    data = first(folder).read_bytes()
    first(folder).write_bytes(data[:-1])
    with pytest.raises(VerificationError, match="cut short"):
        check(folder, shallow)


def test_a_missing_file_is_seen(written):
    folder, shallow = written
    first(folder).unlink()
    with pytest.raises(VerificationError, match="incomplete"):
        check(folder, shallow)


@pytest.mark.parametrize("change", ["gone", "more", "shape"])
def test_tensors_that_do_not_fit_are_seen(change, written):
    folder, shallow = written
    planned = stored_tensors(resolve(str(folder)))
    tensors = load_file(first(folder))
    name = next(n for n in tensors if n.endswith("weight") and tensors[n].ndim == 2)
    if change == "gone":
        del tensors[name]
    elif change == "more":
        tensors["model.layers.4.more"] = torch.zeros(2)
    else:
        tensors[name] = tensors[name][:2].clone()
    save_file(tensors, first(folder), metadata={"format": "pt"})
    with pytest.raises(VerificationError, match="other tensors"):
        check(folder, shallow, planned)
    with pytest.raises(VerificationError, match=r"does not say where|would not load"):
        check(folder, shallow)


def test_a_wrong_index_is_seen(written):
    folder, shallow = written
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    files = sorted(set(index["weight_map"].values()))
    name = next(iter(index["weight_map"]))
    index["weight_map"][name] = next(f for f in files if f != index["weight_map"][name])
    path.write_text(json.dumps(index))
    with pytest.raises(VerificationError, match="does not say where"):
        check(folder, shallow)


def test_a_wrong_config_is_seen(written):
    folder, shallow = written
    path = folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"intermediate_size": 48}))
    with pytest.raises(VerificationError, match="another model"):
        check(folder, shallow)


def test_a_config_that_makes_no_model_is_a_usage_error(tmp_path):
    folder = save_tiny("llama", tmp_path / "m")
    path = folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"hidden_act": "nonsense"}))
    source = resolve(str(folder))
    with pytest.raises(UsageError, match="makes no model"):
        skeleton(source, load_config(source))
