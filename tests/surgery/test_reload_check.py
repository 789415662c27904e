"""The reload check sees every way in which a written folder can be wrong."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from shoal.core.errors import VerificationError
from shoal.core.mask import Mask
from shoal.models.load import load_dense
from shoal.surgery.export import export
from shoal.surgery.probe import logits_of, probe_tokens
from shoal.surgery.tensors import Renamer
from shoal.surgery.verify import check_reload
from shoal.testing.tiny import save_tiny, tiny_model

MASK = Mask.of(6, [1, 3])


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    return load_dense(str(save_tiny("qwen2", tmp_path_factory.mktemp("source") / "dense")))


@pytest.fixture
def written(dense, tmp_path):
    export(dense, MASK, tmp_path / "out", check=False)
    return tmp_path / "out"


def tamper(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def test_right_folder_passes(dense, written):
    checks = check_reload(written, dense, MASK)
    assert checks == {
        "max_logit_difference": 0.0,
        "relative_logit_difference": 0.0,
        "same_tokens_cached": True,
        "same_tokens_uncached": True,
    }


def test_permuted_tensor_is_caught(dense, written):
    def swap(tensors):
        name = "model.layers.{}.mlp.up_proj.weight"
        first, second = name.format(0), name.format(1)
        tensors[first], tensors[second] = tensors[second].clone(), tensors[first].clone()

    tamper(written, swap)
    with pytest.raises(VerificationError, match="logits differ"):
        check_reload(written, dense, MASK)


def test_not_a_number_is_caught(dense, written):
    tamper(written, lambda t: t["model.norm.weight"].fill_(float("nan")))
    with pytest.raises(VerificationError, match="logits differ"):
        check_reload(written, dense, MASK)


@pytest.mark.parametrize("change", ["missing", "unexpected", "mismatched"])
def test_keys_that_do_not_fit_are_caught(change, dense, written):
    def edit(tensors):
        name = "model.layers.2.mlp.up_proj.weight"
        if change == "missing":
            del tensors[name]
        elif change == "unexpected":
            tensors["model.layers.4.mlp.up_proj.weight"] = tensors[name].clone()
        else:
            tensors[name] = tensors[name][:5].clone()

    tamper(written, edit)
    with pytest.raises((VerificationError, RuntimeError), match=r"layers\.\d\.mlp|mismatch"):
        check_reload(written, dense, MASK)


def test_wrong_kinds_of_attention_are_caught_by_tokens_longer_than_the_window(dense, written):
    path = written / "config.json"
    config = json.loads(path.read_text())
    config["layer_types"].reverse()
    path.write_text(json.dumps(config))
    with pytest.raises(VerificationError, match="logits differ"):
        check_reload(written, dense, MASK)


def test_other_mask_is_caught(dense, written):
    with pytest.raises(VerificationError, match="has 4 blocks, not 5"):
        check_reload(written, dense, Mask.of(6, [1]))
    with pytest.raises(VerificationError, match="logits differ"):
        check_reload(written, dense, Mask.of(6, [1, 4]))


def test_wrong_generation_alone_is_caught(dense, written, monkeypatch):
    from shoal.surgery import verify

    real = verify.greedy

    def wrong(model, *args, use_cache, **more):
        tokens = real(model, *args, use_cache=use_cache, **more)
        return tokens if model is dense.module or not use_cache else tokens.flip(0) + 1

    monkeypatch.setattr(verify, "greedy", wrong)
    with pytest.raises(VerificationError, match="other tokens than the masked dense model, cached"):
        check_reload(written, dense, MASK)


def test_broken_renaming_is_never_published(dense, tmp_path, monkeypatch):
    real = Renamer.__call__

    def swapped(self, name):
        new = real(self, name)
        if new and ".up_proj." in new:
            return new.replace(".up_proj.", ".gate_proj.")
        return new.replace(".gate_proj.", ".up_proj.") if new else new

    monkeypatch.setattr("shoal.surgery.weights.Renamer.__call__", swapped)
    # The model in memory must be right, so that only the written files are wrong.
    monkeypatch.setattr("shoal.surgery.memory.Renamer", _Right)
    with pytest.raises(VerificationError, match="not kept"):
        export(dense, MASK, tmp_path / "out")
    assert not any(tmp_path.iterdir())


class _Right(Renamer):
    __call__ = Renamer.__call__


def test_dense_model_is_left_as_it_was(dense, written):
    dense.module.generation_config.temperature = 0.5
    settings, config = dense.module.generation_config, dense.config.to_dict()
    use_cache = dense.config.use_cache
    tokens = probe_tokens(dense, 2)
    before = logits_of(dense.module, tokens)
    check_reload(written, dense, MASK)
    assert dense.module.generation_config is settings
    assert settings.temperature == 0.5
    assert dense.config.to_dict() == config
    assert dense.config.use_cache is use_cache
    assert not any(block._forward_hooks for block in dense.blocks.layers)
    assert torch.equal(logits_of(dense.module, tokens), before)
    assert not dense.module.training


def test_probe_tokens_are_ordinary_and_exceed_a_small_window():
    dense = load_dense(tiny_model("mistral"))
    tokens = probe_tokens(dense, 3)
    assert tokens.shape == (3, 16)
    assert tokens.min() > 2
    assert probe_tokens(load_dense(tiny_model("llama")), 1).shape == (1, 24)
    short = load_dense(tiny_model("llama"))
    short.config.max_position_embeddings = 20
    assert probe_tokens(short, 1, 8).shape == (1, 12)
