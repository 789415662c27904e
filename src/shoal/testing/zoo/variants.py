"""The same model types with other settings, where these change what the blocks depend on."""

from shoal.testing.zoo.decoders_dense import DENSE
from shoal.testing.zoo.decoders_experts import EXPERTS
from shoal.testing.zoo.decoders_hybrid import HYBRID
from shoal.testing.zoo.decoders_indexed import INDEXED
from shoal.testing.zoo.decoders_windows import WINDOWS
from shoal.testing.zoo.multimodal import MULTIMODAL, gemma3_with_tower
from shoal.testing.zoo.recipe import UNSET, Fields, Recipe
from shoal.testing.zoo.schedules import FULL, LINEAR, cycle

_BASE = DENSE | WINDOWS | EXPERTS | INDEXED | HYBRID | MULTIMODAL


def _variant(model_type: str, **changes: object) -> Recipe:
    """A recipe with some fields changed; `UNSET` leaves a field to the config class."""
    base = _BASE[model_type]

    def own(depth: int) -> Fields:
        return base.own(depth) | {
            name: value(depth) if callable(value) else value for name, value in changes.items()
        }

    return Recipe(model_type, base.kind, own, base.depth_field)


def _kimi_nested(depth: int) -> Fields:
    """The kinds of blocks as indices from 1, as released checkpoints have them."""
    return {
        "kda_layers": list(range(1, depth + 1, 2)),
        "full_attn_layers": list(range(2, depth + 1, 2)),
        "head_dim": 8,
        "num_heads": 4,
        "short_conv_kernel_size": 4,
    }


_NO_SHARING = {"num_kv_shared_layers": 0}
_ALL_INDEXERS = {"indexer_types": UNSET}

VARIANTS: dict[str, Recipe] = {
    "bloom[post_norm_residual]": _variant("bloom", apply_residual_connection_post_layernorm=True),
    "ernie4_5_moe[interval2]": _variant("ernie4_5_moe", moe_layer_interval=2),
    "falcon[sequential]": _variant(
        "falcon", alibi=True, new_decoder_architecture=False, parallel_attn=False
    ),
    "gemma3[deep_tower]": Recipe("gemma3", "M", lambda d: gemma3_with_tower(d, d), None),
    "gemma3_text[default]": _variant("gemma3_text", sliding_window_pattern=UNSET),
    "gemma3n_text[no_share]": _variant("gemma3n_text", **_NO_SHARING),
    "gemma4_text[experts]": _variant(
        "gemma4_text", **_NO_SHARING, enable_moe_block=True, top_k_experts=2
    ),
    "gemma4_text[keys_are_values]": _variant(
        "gemma4_text", **_NO_SHARING, attention_k_eq_v=True, num_global_key_value_heads=1
    ),
    "gemma4_text[no_share]": _variant("gemma4_text", **_NO_SHARING),
    "gemma4_text[no_share_no_ple]": _variant(
        "gemma4_text", **_NO_SHARING, hidden_size_per_layer_input=0
    ),
    "gemma4_unified_text[no_share]": _variant("gemma4_unified_text", **_NO_SHARING),
    "glm_moe_dsa[no_share]": _variant("glm_moe_dsa", **_ALL_INDEXERS),
    "gpt2[inverse_layer_idx]": _variant("gpt2", scale_attn_by_inverse_layer_idx=True),
    "gpt_neox[sequential]": _variant("gpt_neox", use_parallel_residual=False),
    "hy_v4[no_share]": _variant("hy_v4", indexer_types=lambda depth: ["full"] * depth),
    "inkling_text[local_layer_ids]": _variant(
        "inkling_text",
        layer_types=UNSET,
        local_layer_ids=lambda depth: [i for i in range(depth) if i % 3 < 2],
        mlp_layer_types=UNSET,
        dense_mlp_idx=2,
    ),
    "kimi_linear[nested]": _variant(
        "kimi_linear",
        layer_types=UNSET,
        linear_attn_config=_kimi_nested,
        mlp_layer_types=UNSET,
        first_k_dense_replace=2,
    ),
    "lfm2[full_attn_idxs]": _variant(
        "lfm2", layer_types=UNSET, full_attn_idxs=lambda depth: list(range(1, depth, 2))
    ),
    "llama4_text[all_moe]": _variant("llama4_text", interleave_moe_layer_step=1),
    "nemotron_h[mtp]": _variant("nemotron_h", num_nextn_predict_layers=1),
    "nemotron_h[one_attention]": _variant(
        "nemotron_h",
        layers_block_type=lambda depth: cycle(depth, LINEAR, "moe", FULL, "mlp", LINEAR, "mlp"),
    ),
    "opt[post_norm]": _variant("opt", do_layer_norm_before=False, word_embed_proj_dim=16),
    "qwen3_moe[sparse_step2]": _variant("qwen3_moe", mlp_only_layers=UNSET),
    "recurrent_gemma[default]": _variant("recurrent_gemma", block_types=UNSET),
    "rwkv[rescale]": _variant("rwkv", rescale_every=2),
    "stablelm[parallel]": _variant("stablelm", use_parallel_residual=True),
    "zamba2[plain]": _variant(
        "zamba2", num_mem_blocks=1, use_shared_attention_adapter=False, use_mem_rope=False
    ),
}
"""Name -> recipe, named after the model type with the difference in brackets."""
