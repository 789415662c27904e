"""Naming a model, rightly and wrongly."""

import json

import pytest
import torch
from transformers import BertConfig, T5Config

from shoal.core.errors import UnsupportedModelError, UsageError
from shoal.models.device import pick_device, pick_dtype
from shoal.models.discover import check_causal, find_blocks
from shoal.models.load import load_config, load_dense
from shoal.models.source import resolve
from shoal.testing.tiny import save_tiny, tiny_model


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/model", "a/b/c", "missing.gguf"])
def test_a_missing_path_says_so(name):
    with pytest.raises(UsageError, match="there is nothing at"):
        resolve(name)


def test_a_file_that_is_no_model(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    with pytest.raises(UsageError, match="not a GGUF model"):
        resolve(str(path))


def test_folders_that_are_no_models(tmp_path):
    with pytest.raises(UsageError, match=r"no config\.json"):
        resolve(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(UsageError, match=r"neither model\.safetensors nor"):
        resolve(str(tmp_path))
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    assert resolve(str(tmp_path)).pickled


@pytest.mark.parametrize(
    "name", ["../x.safetensors", "/etc/x.safetensors", "a/../../x.safetensors"]
)
@pytest.mark.parametrize("index", ["model.safetensors.index.json", "pytorch_model.bin.index.json"])
def test_index_files_that_lead_out_of_the_folder_are_refused(tmp_path, name, index):
    folder = tmp_path / "m"
    folder.mkdir()
    (tmp_path / "x.safetensors").write_bytes(b"")
    (folder / "config.json").write_text("{}")
    (folder / index).write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(UsageError, match="outside the folder"):
        resolve(str(folder))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {}}'])
def test_index_files_that_are_no_lists_are_refused(tmp_path, text):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(UsageError, match="no list of weight files"):
        resolve(str(tmp_path))


def test_a_broken_config_is_a_usage_error(tmp_path):
    folder = save_tiny("llama", tmp_path / "m")
    (folder / "config.json").write_text("{not json")
    with pytest.raises(UsageError, match="config cannot be read"):
        load_config(resolve(str(folder)))


def test_unknown_model_types_and_odd_names(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="names no model"):
        resolve("what is this?")
    folder = save_tiny("llama", tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "nonsense"}))
    with pytest.raises(UsageError, match="config cannot be read"):
        load_config(resolve(str(folder)))


def test_a_hub_model_that_cannot_be_had(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UsageError, match="neither a folder nor a file here"):
        resolve("nobody/nothing")


def test_encoders_and_encoder_decoders_are_refused():
    with pytest.raises(UsageError, match="encoder-only"):
        check_causal(BertConfig())
    with pytest.raises(UsageError, match="encoder-decoder"):
        check_causal(T5Config())


def test_equal_files_have_equal_fingerprints(tmp_path):
    first = resolve(str(save_tiny("llama", tmp_path / "a"))).fingerprint()
    second = resolve(str(save_tiny("llama", tmp_path / "b"))).fingerprint()
    assert first == second
    folder = tmp_path / "b"
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "model.safetensors").write_bytes(weights)
    assert resolve(str(folder)).fingerprint() != first


def test_model_objects_have_fingerprints_of_their_tensors():
    first = load_dense(tiny_model("llama"))
    assert first.fingerprint == load_dense(tiny_model("llama")).fingerprint
    changed = tiny_model("llama")
    with torch.no_grad():
        weight = changed.model.layers[2].mlp.up_proj.weight
        weight[0, 0], weight[0, 1] = weight[0, 1].clone(), weight[0, 0].clone()
    assert load_dense(changed).fingerprint != first.fingerprint


def test_blocks_that_cannot_be_told_are_refused():
    model = tiny_model("llama")
    model.config.num_hidden_layers = 5
    with pytest.raises(UnsupportedModelError, match="cannot tell the decoder blocks"):
        find_blocks(model)


def test_devices_and_dtypes():
    assert pick_device("cpu").type == "cpu"
    with pytest.raises(UsageError, match="unknown device"):
        pick_device("toaster")
    with pytest.raises(UsageError, match="not available"):
        pick_device("cuda:63")
    assert pick_dtype("auto", torch.device("cpu"), torch.float16) == torch.float16
    assert pick_dtype("float32", torch.device("cpu"), torch.float16) == torch.float32
    with pytest.raises(UsageError, match="unknown dtype"):
        pick_dtype("int4", torch.device("cpu"), None)


def test_dtype_of_a_folder_is_the_checkpoint_s(tmp_path):
    folder = save_tiny("llama", tmp_path / "m")
    assert load_dense(str(folder)).dtype == torch.float32
    assert load_dense(str(folder), dtype="bfloat16").dtype == torch.bfloat16
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "dtype": "bfloat16"}))
    assert load_dense(str(folder)).dtype == torch.bfloat16
