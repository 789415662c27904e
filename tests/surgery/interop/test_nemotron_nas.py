"""The nemotron-nas form: its config, its tensors, what it cannot say, and reading it back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoConfig, LlamaConfig, MistralConfig, Qwen2Config

from shoal.core.errors import UnsupportedModelError, UsageError
from shoal.core.mask import Mask, Part, Site
from shoal.surgery.interop.llama_shaped import check_llama_shaped, ffn_mult, intermediate_size
from shoal.surgery.interop.nemotron_nas import (
    CONFIGURATION_FILE,
    block_configs,
    check_mask,
    configuration_code,
    keep_tensor,
    nemotron_config,
)
from shoal.surgery.interop.nemotron_read import from_nemotron

ROPE3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def llama(depth=4, **fields):
    small = {
        "hidden_size": 64,
        "intermediate_size": 256,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 50,
        "max_position_embeddings": 512,
    }
    return LlamaConfig(num_hidden_layers=depth, **{**small, **fields})


@st.composite
def masks(draw: st.DrawFn) -> Mask:
    """Masks that the form can express: the first sub-layer that stays is an attention."""
    depth = draw(st.integers(1, 20))
    first = draw(st.integers(0, depth - 1))
    later = draw(st.sets(st.integers(2 * first + 1, 2 * depth - 1)))
    places = later | set(range(2 * first))
    return Mask(depth, frozenset(Site(i // 2, (Part.ATTN, Part.MLP)[i % 2]) for i in places))


def test_the_entries():
    whole = {
        "attention": {"no_op": False, "n_heads_in_group": 2, "replace_with_linear": False},
        "ffn": {"no_op": False, "ffn_mult": 6.0, "replace_with_linear": False},
    }
    no_attention = {"no_op": True, "n_heads_in_group": None, "replace_with_linear": False}
    no_ffn = {"no_op": True, "ffn_mult": None, "replace_with_linear": False}
    assert block_configs(llama(), Mask.parse("-[1,2.attn,3.mlp]", 4)) == [
        whole,
        {"attention": no_attention, "ffn": no_ffn},
        {"attention": no_attention, "ffn": whole["ffn"]},
        {"attention": whole["attention"], "ffn": no_ffn},
    ]


def test_the_config():
    config = llama(2, dtype="bfloat16", rope_parameters=ROPE3, tie_word_embeddings=True)
    written = nemotron_config(config, Mask.parse("-[1.attn]", 2))
    blocks = written.pop("block_configs")
    assert [b["attention"]["no_op"] for b in blocks] == [False, True]
    scaling = {k: v for k, v in ROPE3.items() if k != "rope_theta"}
    assert json.loads(json.dumps(written)) == {
        "architectures": ["DeciLMForCausalLM"],
        "model_type": "nemotron-nas",
        "auto_map": {"AutoConfig": "configuration_nemotron_nas.NemotronNasConfig"},
        "vocab_size": 50,
        "hidden_size": 64,
        "intermediate_size": 256,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "head_dim": 16,
        "hidden_act": "silu",
        "max_position_embeddings": 512,
        "initializer_range": 0.02,
        "rms_norm_eps": 1e-06,
        "use_cache": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": None,
        "tie_word_embeddings": True,
        "attention_dropout": 0.0,
        "attention_bias": False,
        "mlp_bias": False,
        "rope_parameters": ROPE3,
        "rope_theta": 5e5,
        "rope_scaling": scaling,
        "torch_dtype": "bfloat16",
    }


@given(masks())
def test_reads_back_what_it_writes(mask):
    written = json.loads(json.dumps(nemotron_config(llama(mask.depth), mask)))
    assert from_nemotron(written) == mask
    assert from_nemotron(written, mask.depth) == mask


@given(masks())
def test_a_tensor_stays_with_its_sub_layer(mask):
    for layer in range(mask.depth):
        head = f"model.layers.{layer}"
        attention = Site(layer, Part.ATTN) not in mask.sublayers
        ffn = Site(layer, Part.MLP) not in mask.sublayers
        assert keep_tensor(f"{head}.input_layernorm.weight", mask) is attention
        assert keep_tensor(f"{head}.self_attn.o_proj.weight", mask) is attention
        assert keep_tensor(f"{head}.post_attention_layernorm.weight", mask) is ffn
        assert keep_tensor(f"{head}.mlp.down_proj.weight", mask) is ffn
        assert not keep_tensor(f"{head}.self_attn.rotary_emb.inv_freq", mask)


def test_tensors_outside_the_blocks_stay():
    mask = Mask.of(2, [1])
    for name in ("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"):
        assert keep_tensor(name, mask)


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.mlp_norm.weight",
        "model.layers.2.mlp.x",
        "model.layers.0.cross_attn.q.weight",
    ],
)
def test_tensors_of_other_blocks_are_refused(name):
    with pytest.raises(UnsupportedModelError, match="no tensor of a Llama model with 2 blocks"):
        keep_tensor(name, Mask.of(2, [1]))


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        ("-[0.attn]", r"keeps 0\.mlp ahead of the first attention, 1\.attn"),
        ("-[0,1.attn]", r"keeps 1\.mlp ahead of the first attention, 2\.attn"),
        ("-[0.attn,1.attn,2]", r"keeps 0\.mlp"),
        ("-[0-3]", "removes every attention"),
        ("-[0.attn,1.attn,2.attn,3.attn]", "removes every attention"),
    ],
)
def test_masks_with_which_vllm_fails(mask, said):
    with pytest.raises(UsageError, match=said):
        check_mask(Mask.parse(mask, 4))
    with pytest.raises(UsageError, match=said):
        block_configs(llama(), Mask.parse(mask, 4))


@pytest.mark.parametrize("mask", ["-[]", "-[0]", "-[0-2]", "-[0.mlp,1.attn]", "-[0,1.mlp,2.attn]"])
def test_masks_that_begin_with_attention_pass(mask):
    check_mask(Mask.parse(mask, 4))


def test_another_depth_is_refused():
    with pytest.raises(UsageError, match="for 5 blocks, but the model has 4"):
        nemotron_config(llama(), Mask.of(5, [1]))


@given(st.integers(1, 300), st.integers(1, 20000))
def test_every_multiple_of_256_survives_the_rounding(steps, hidden):
    width = 256 * steps
    value = json.loads(json.dumps(ffn_mult(width, hidden)))
    assert isinstance(value, float)
    assert intermediate_size(value, hidden) == width


@pytest.mark.parametrize(
    ("mult", "hidden", "width"),
    [(2.625, 8192, 14336), (5.25, 8192, 28672), (1.3125, 8192, 7168), (0.5, 8192, 2816)],
)
def test_the_widths_of_published_models(mult, hidden, width):
    assert intermediate_size(mult, hidden) == width


@pytest.mark.parametrize("width", [0, 1, 255, 257, 8640])
def test_other_widths_are_refused(width):
    with pytest.raises(UnsupportedModelError, match=f"MLP width of {width} .* multiples of 256"):
        ffn_mult(width, 64)


def mistral(**fields):
    return MistralConfig(**{"num_hidden_layers": 2, "sliding_window": None, **fields})


@pytest.mark.parametrize(
    "config",
    [
        llama(),
        llama(head_dim=32),
        llama(rope_parameters=ROPE3),
        llama(architectures=["LlamaForCausalLM"]),
        mistral(),
    ],
)
def test_llama_maths_passes(config):
    check_llama_shaped(config)
    depth = config.num_hidden_layers
    assert len(block_configs(config, Mask.of(depth, [0]))) == depth


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (Qwen2Config(), "qwen2 cannot .* model type must be one of llama, mistral"),
        (mistral(sliding_window=4096), "sliding_window must be unset, got 4096"),
        (llama(hidden_act="gelu"), "hidden_act must be 'silu', got 'gelu'"),
        (llama(attention_bias=True), "attention_bias must be False, got True"),
        (llama(mlp_bias=True), "mlp_bias must be False"),
        (llama(quantization_config={"quant_method": "fp8"}), "quantization_config must be unset"),
        (llama(layer_types=["full_attention"] * 4), "layer_types must be unset"),
        (llama(architectures=["OtherForCausalLM"]), "architecture must be LlamaForCausalLM"),
        (llama(intermediate_size=8640), "multiple of 256, got 8640"),
        (llama(num_key_value_heads=3), "4 attention heads cannot share 3"),
        (
            llama(rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}),
            "rope_type must be one of default, linear, llama3",
        ),
        (
            llama(
                rope_parameters={
                    "rope_type": "default",
                    "rope_theta": 1e4,
                    "partial_rotary_factor": 0.5,
                }
            ),
            "must cover the whole head",
        ),
    ],
)
def test_other_maths_is_refused(config, said):
    with pytest.raises(UnsupportedModelError, match=said):
        check_llama_shaped(config)


def test_all_reasons_are_given_at_once():
    with pytest.raises(UnsupportedModelError, match=r"hidden_act .*; mlp_bias .*; intermediate"):
        check_llama_shaped(llama(hidden_act="gelu", mlp_bias=True, intermediate_size=100))


def test_transformers_reads_the_config(tmp_path):
    mask = Mask.parse("-[1.attn,2]", 4)
    config = llama(rope_parameters=ROPE3, dtype="bfloat16")
    (tmp_path / "config.json").write_text(json.dumps(nemotron_config(config, mask)))
    (tmp_path / CONFIGURATION_FILE).write_text(configuration_code())
    read = AutoConfig.from_pretrained(tmp_path, trust_remote_code=True)
    # By attribute, as vLLM does.
    assert [b.attention.no_op for b in read.block_configs] == [False, True, True, False]
    assert [b.ffn.no_op for b in read.block_configs] == [False, False, True, False]
    assert read.block_configs[0].attention.n_heads_in_group == 2
    assert intermediate_size(read.block_configs[0].ffn.ffn_mult, read.hidden_size) == 256
    assert not hasattr(read.block_configs[0].ffn, "hidden_act")
    assert read.rope_parameters == config.rope_parameters
    for name in ("dtype", "head_dim", "rms_norm_eps", "eos_token_id", "tie_word_embeddings"):
        assert getattr(read, name) == getattr(config, name)
    assert from_nemotron(json.loads(read.to_json_string(use_diff=False))) == mask


def written(mask="-[1.attn]", depth=3):
    return json.loads(json.dumps(nemotron_config(llama(depth), Mask.parse(mask, depth))))


def edited(path, value):
    config = written()
    *way, last = path
    place = config
    for step in way:
        place = place[step]
    place[last] = value
    return config


BLOCKS = "block_configs"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "needs a list"),
        ([], "needs a list"),
        (None, "needs a list"),
        (edited([BLOCKS], []), "needs a list"),
        (edited([BLOCKS], {"0": {}}), "needs a list"),
        (edited(["num_hidden_layers"], 4), "3 block_configs and num_hidden_layers is 4"),
        (edited(["num_hidden_layers"], None), "num_hidden_layers is None"),
        (edited([BLOCKS, 1], "x"), "block 1 is 'x', not a mapping"),
        (edited([BLOCKS, 1], {}), "block 1 has no attention.no_op"),
        (edited([BLOCKS, 1, "ffn"], None), "block 1 has no ffn.no_op"),
        (edited([BLOCKS, 0, "ffn", "no_op"], 1), "block 0 has no ffn.no_op"),
        (edited([BLOCKS, 2, "attention", "replace_with_linear"], True), "replace_with_linear"),
        (edited([BLOCKS, 1, "attention", "replace_with_linear"], True), "replace_with_linear"),
        (edited([BLOCKS, 2, "attention", "num_sink_tokens"], 4), "attention.num_sink_tokens to 4"),
        (edited([BLOCKS, 2, "parallel_blocks"], [{}]), "sets 'parallel_blocks'"),
        (edited([BLOCKS, 2, "attention", "n_heads_in_group"], 4), "has .*group 4 where block 0"),
        (edited([BLOCKS, 2, "ffn", "ffn_mult"], 3.0), "ffn.ffn_mult 3.0 where block 0 has 6.0"),
        (edited([BLOCKS, 2, "ffn", "intermediate_size"], 9), "ffn.intermediate_size 9 where"),
    ],
)
def test_what_is_no_mask(config, said):
    with pytest.raises(UsageError, match=said):
        from_nemotron(config)


def test_the_fields_of_nvidias_files_pass_when_they_are_off():
    config = edited([BLOCKS, 2, "attention", "sparsify"], None)
    config[BLOCKS][2]["attention"]["unshifted_sink"] = False
    config[BLOCKS][2]["parallel_blocks"] = None
    assert from_nemotron(config) == Mask.parse("-[1.attn]", 3)


def test_the_depth_is_compared():
    with pytest.raises(UsageError, match="for 3 blocks, but the model has 4"):
        from_nemotron(written(), 4)
