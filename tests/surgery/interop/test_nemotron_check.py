"""The check of a written nemotron-nas folder, and that its tensors are enough to compute with."""

import json

import pytest
import torch
from safetensors.torch import save_file
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from shoal.core.errors import UsageError, VerificationError
from shoal.core.mask import Mask, Part
from shoal.surgery.interop.nemotron_check import check_nemotron, expected_tensors
from shoal.surgery.interop.nemotron_nas import (
    CONFIGURATION_FILE,
    configuration_code,
    keep_tensor,
    nemotron_config,
)

MASK = Mask.parse("-[0,1.mlp,2.attn,4]", 6)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=256,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_hidden_layers=6,
        vocab_size=50,
        initializer_range=0.3,
    )
    model = LlamaForCausalLM(config).eval()
    for name, weight in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(weight, 0.5, 1.5)
    return model


def kept(model, mask):
    return {n: t for n, t in model.state_dict().items() if keep_tensor(n, mask)}


def write(folder, model, mask=MASK, *, drop=(), add=None, **fields):
    config = {**nemotron_config(model.config, mask), **fields}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / CONFIGURATION_FILE).write_text(configuration_code())
    tensors = {n: t for n, t in kept(model, mask).items() if n not in drop}
    save_file({**tensors, **(add or {})}, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("mask", ["-[]", "-[0]", "-[1.mlp,2.attn]", "-[0,1.mlp,2.attn,4]"])
def test_a_written_folder_passes_and_states_its_mask(tmp_path, model, mask):
    mask = Mask.parse(mask, 6)
    assert check_nemotron(write(tmp_path, model, mask)) == mask


def test_the_expected_tensors_of_the_dense_mask_are_those_of_the_model(model):
    expected = expected_tensors(nemotron_config(model.config, Mask.dense(6)))
    assert expected == {n: tuple(t.shape) for n, t in model.state_dict().items()}


def test_tied_embeddings_need_no_head(tmp_path, model):
    head = "lm_head.weight"
    write(tmp_path, model, drop=[head], tie_word_embeddings=True)
    assert check_nemotron(tmp_path) == MASK
    write(tmp_path, model, tie_word_embeddings=True)
    assert check_nemotron(tmp_path) == MASK
    write(tmp_path, model, drop=[head])
    with pytest.raises(VerificationError, match="1 missing, lm_head"):
        check_nemotron(tmp_path)


def test_every_difference_is_found(tmp_path, model):
    write(
        tmp_path,
        model,
        drop=["model.layers.1.input_layernorm.weight"],
        add={
            "model.layers.0.mlp.up_proj.weight": torch.zeros(1),
            "model.layers.3.mlp.up_proj.weight": torch.zeros(3, 64),
        },
    )
    with pytest.raises(VerificationError) as caught:
        check_nemotron(tmp_path)
    said = str(caught.value)
    assert "1 missing, model.layers.1.input_layernorm.weight first" in said
    assert "1 not asked for, model.layers.0.mlp.up_proj.weight first" in said
    assert "model.layers.3.mlp.up_proj.weight (3, 64) instead of (256, 64)" in said


def test_a_tensor_in_two_files(tmp_path, model):
    write(tmp_path, model)
    (tmp_path / "model.safetensors").rename(tmp_path / "a.safetensors")
    save_file({"model.norm.weight": torch.zeros(64)}, tmp_path / "b.safetensors")
    weights = {"x": "a.safetensors", "y": "b.safetensors"}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weights}))
    with pytest.raises(VerificationError, match=r"model\.norm\.weight twice"):
        check_nemotron(tmp_path)


@pytest.mark.parametrize(
    ("fields", "error", "said"),
    [
        ({"model_type": "llama"}, VerificationError, "says model_type 'llama'"),
        ({"architectures": ["LlamaForCausalLM"]}, VerificationError, "vLLM needs nemotron-nas"),
        ({"auto_map": {"AutoConfig": "other.Config"}}, VerificationError, "lacks other.py"),
        ({"auto_map": {"AutoConfig": "../x.Config"}}, VerificationError, "names no class"),
        ({"auto_map": None}, VerificationError, "names no class"),
        ({"hidden_size": "64"}, UsageError, "hidden_size '64'; it must be a positive number"),
        ({"hidden_size": 64.5}, UsageError, "must be a whole number"),
        ({"vocab_size": -1}, UsageError, "positive"),
        ({"vocab_size": True}, UsageError, "positive"),
        ({"hidden_size": float("inf")}, UsageError, "positive"),
        ({"num_hidden_layers": 5}, UsageError, "numbers must be equal"),
    ],
)
def test_a_wrong_config(tmp_path, model, fields, error, said):
    with pytest.raises(error, match=said):
        check_nemotron(write(tmp_path, model, **fields))


def test_a_mask_with_which_vllm_fails(tmp_path, model):
    blocks = nemotron_config(model.config, MASK)["block_configs"]
    blocks[0]["ffn"] = blocks[3]["ffn"]
    with pytest.raises(UsageError, match=r"keeps 0\.mlp ahead of the first attention"):
        check_nemotron(write(tmp_path, model, block_configs=blocks))


def test_missing_files(tmp_path, model):
    with pytest.raises(UsageError, match=r"no config\.json"):
        check_nemotron(tmp_path)
    write(tmp_path, model)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(UsageError, match="holds neither"):
        check_nemotron(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UsageError, match="no JSON"):
        check_nemotron(tmp_path)


def as_vllm(config, tensors, tokens):
    """The forward pass of the form, with the residual carried beside the last output.

    It is written against the description of vLLM's layers, and reads nothing but the file's
    content: a tensor that is missing, or a norm without a residual, is an error here too.
    """
    heads, size = config["num_attention_heads"], config["head_dim"]
    rotary = LlamaRotaryEmbedding(
        LlamaConfig(rope_parameters=config["rope_parameters"], head_dim=size)
    )

    def norm(name, hidden, residual):
        total = hidden + residual
        scaled = rms_norm(total, total.shape[-1:], tensors[name], config["rms_norm_eps"])
        return scaled, total

    def attention(block, hidden):
        q, k, v = (
            (hidden @ tensors[f"{block}.self_attn.{n}_proj.weight"].T).unflatten(-1, (-1, size))
            for n in "qkv"
        )
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        q, k = apply_rotary_pos_emb(q, k, *rotary(hidden, torch.arange(tokens.shape[1])[None]))
        out = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        assert q.shape[1] == heads
        return out.transpose(1, 2).flatten(2) @ tensors[f"{block}.self_attn.o_proj.weight"].T

    hidden, residual = tensors["model.embed_tokens.weight"][tokens], None
    for layer, entry in enumerate(config["block_configs"]):
        block = f"model.layers.{layer}"
        if not entry["attention"]["no_op"]:
            before = torch.zeros_like(hidden) if residual is None else residual
            hidden, residual = norm(f"{block}.input_layernorm.weight", hidden, before)
            hidden = attention(block, hidden)
        if not entry["ffn"]["no_op"]:
            hidden, residual = norm(f"{block}.post_attention_layernorm.weight", hidden, residual)
            gate, up = (hidden @ tensors[f"{block}.mlp.{n}_proj.weight"].T for n in ("gate", "up"))
            hidden = (silu(gate) * up) @ tensors[f"{block}.mlp.down_proj.weight"].T
    hidden, _ = norm("model.norm.weight", hidden, residual)
    return hidden @ tensors["lm_head.weight"].T


@pytest.mark.parametrize("mask", ["-[]", "-[0,1.mlp,2.attn,4]", "-[0.mlp,1.attn,3.mlp,4,5.attn]"])
@torch.no_grad()
def test_the_file_computes_what_the_masked_model_computes(model, mask):
    mask = Mask.parse(mask, 6)
    tokens = torch.arange(24).reshape(2, 12)
    config = json.loads(json.dumps(nemotron_config(model.config, mask)))
    masked = LlamaForCausalLM(model.config).eval()
    masked.load_state_dict(model.state_dict())
    for site in mask.sublayers:
        block = masked.model.layers[site.layer]
        out = block.self_attn.o_proj if site.part is Part.ATTN else block.mlp.down_proj
        out.weight.zero_()
    expected = masked(tokens).logits
    torch.testing.assert_close(
        as_vllm(config, kept(model, mask), tokens), expected, atol=1e-4, rtol=1e-4
    )
