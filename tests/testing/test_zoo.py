"""The zoo: every causal LM type has a recipe or a reason, and recipes keep their promises."""

import pytest
import torch
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from shoal.testing.conformance_oracle import DEPTH, Oracle
from shoal.testing.conformance_prompts import ONE, PADDED
from shoal.testing.tiny import TINY_FAMILIES, save_tiny, tiny_config, tiny_model
from shoal.testing.zoo import TYPES, UNMEASURED, ZOO
from shoal.testing.zoo.recipe import UNSET, Recipe, fields_of

FEW = ["gemma2", "glm_moe_dsa", "roberta", "whisper", "qwen3_5_moe", "llama4_text[all_moe]"]


def test_every_causal_model_type_has_a_recipe_or_a_reason():
    assert set(TYPES) | set(UNMEASURED) == set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    assert not set(TYPES) & set(UNMEASURED)
    assert all(UNMEASURED.values())


def test_names_are_model_types_or_variants_of_them():
    for name, recipe in ZOO.items():
        assert name.partition("[")[0] == recipe.model_type
        assert recipe.kind == TYPES[recipe.model_type].kind
    assert set(TINY_FAMILIES) < set(TYPES)


def matters(name, folder):
    oracle = Oracle.load(save_tiny(name, folder, tokenizer=False))
    dense = oracle.logits((), ONE)
    assert oracle.logits((), PADDED).isfinite().all()
    for block in range(DEPTH):
        change = (oracle.logits((block,), ONE) - dense).abs().max()
        assert change > 1e-2, f"block {block} changes the logits by {change}"


@pytest.mark.parametrize("name", FEW)
def test_every_block_matters(name, tmp_path):
    matters(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ZOO if name not in FEW])
def test_every_block_of_every_model_matters(name, tmp_path):
    matters(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ZOO)
def test_models_are_small_and_reproducible(name):
    one, two = tiny_model(name), tiny_model(name)
    assert sum(parameter.numel() for parameter in one.parameters()) < 300_000
    assert all(torch.equal(a, two.state_dict()[key]) for key, a in one.state_dict().items())


def test_differences_between_blocks_are_on():
    assert tiny_config("qwen3").layer_types[2:4] == ["full_attention", "sliding_attention"]
    assert len(set(tiny_config("granite_swa").layer_rope_theta)) == 2
    assert tiny_config("llama4_text").moe_layers == [1, 3, 5]
    assert tiny_config("llama4_text[all_moe]").moe_layers == [0, 1, 2, 3, 4, 5]
    assert tiny_config("gemma4_text").num_kv_shared_layers == 2
    assert "shared" in tiny_config("hy_v4").indexer_types
    assert set(tiny_config("nemotron_h").layers_block_type) >= {"moe", "mlp", "full_attention"}
    assert tiny_config("gemma3").text_config.layer_types.count("full_attention") == 2


def test_a_tower_may_be_as_deep_as_the_decoder():
    config = tiny_config("gemma3[deep_tower]")
    assert config.vision_config.num_hidden_layers == config.text_config.num_hidden_layers == 6


@pytest.mark.parametrize("name", ["deepseek_v3", "bart", "gemma3", "longcat_flash", "nemotron_h"])
def test_depth_is_free(name):
    lists = [m for m in tiny_model(name, depth=4).modules() if isinstance(m, torch.nn.ModuleList)]
    assert 4 in map(len, lists)


def test_base_fields_are_left_out_where_a_recipe_says_so_or_a_class_lacks_them():
    assert fields_of("llama", {})["head_dim"] == 8
    assert "head_dim" not in fields_of("llama", {"head_dim": UNSET})
    assert "head_dim" not in fields_of("falcon", {})  # Computed from others there.
    assert "num_experts" not in fields_of("llama", {})
    assert fields_of("llama", {"vocab_size": 7}, attention_bias=True)["vocab_size"] == 7


def test_dropout_is_off_everywhere():
    config = Recipe("bert", "E", lambda depth: {"hidden_dropout_prob": 0.5}).config()
    assert config.hidden_dropout_prob == 0.0
    assert tiny_config("git").vision_config.attention_dropout == 0.0
