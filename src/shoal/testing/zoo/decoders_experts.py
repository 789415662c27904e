"""Decoders with experts, some of whose blocks have none."""

from shoal.testing.zoo.recipe import UNSET, Fields, Recipe, decoders, just
from shoal.testing.zoo.schedules import FULL, SLIDING, cycle, dense_first, rotary

_LEADING = {"first_k_dense_replace": 2}
_LATENT = {"num_key_value_heads": 4}


def _mlp_list(depth: int) -> Fields:
    return {"mlp_layer_types": dense_first(depth)}


def _latent_mlp_list(depth: int) -> Fields:
    return _LATENT | {"mlp_layer_types": dense_first(depth)}


def _beam(depth: int) -> Fields:
    return {
        "layer_types": cycle(depth, SLIDING, SLIDING, FULL),
        "mlp_layer_types": dense_first(depth),
        "rope_parameters": rotary(SLIDING) | {FULL: None},
    }


def _ernie(depth: int) -> Fields:
    return {
        "moe_num_experts": 4,
        "moe_k": 2,
        "moe_num_shared_experts": 1,
        "moe_layer_start_index": 2,
        "moe_layer_end_index": depth - 1,
        "moe_layer_interval": 1,
    }


def _inkling(depth: int) -> Fields:
    return inkling2(depth) | {
        "mlp_layer_types": dense_first(depth),
        "logits_mup_width_multiplier": 2.0,
    }


def inkling2(depth: int) -> Fields:
    """What the Inkling types share; blocks two by two attend to one residual stream."""
    return {
        "unpadded_vocab_size": 128,
        "swa_num_attention_heads": 4,
        "swa_num_key_value_heads": 2,
        "swa_head_dim": 8,
        "sliding_window_size": 8,
        "d_rel": 4,
        "rel_extent": 16,
        "layer_types": cycle(depth, "hybrid_sliding", "hybrid_sliding", "hybrid"),
    }


def _inkling2(depth: int) -> Fields:
    return inkling2(depth) | {"n_layers_per_attn_res_block": 2}


def _inkling2_loop(depth: int) -> Fields:
    loop = {"loop_layer_index_start": 2, "loop_layer_index_end": 4, "loop_num_passes": 2}
    return _inkling2(depth) | loop | {"loop_gate_rank": 8}


def _qwen2_moe(depth: int) -> Fields:
    return {
        "use_sliding_window": True,
        "max_window_layers": 3,
        "decoder_sparse_step": 2,
        "mlp_only_layers": [3],
    }


EXPERTS: dict[str, Recipe] = decoders(
    {
        "afmoe": just(num_dense_layers=2, global_attn_every_n_layers=3),
        "aria_text": just(moe_num_experts=4, moe_topk=2, moe_num_shared_experts=1),
        "axk1": just(**_LEADING, **_LATENT),
        "beam": _beam,
        "cohere2_moe": just(first_k_dense_replace=2, prefix_dense_sliding_window_pattern=1),
        "dbrx": just(
            d_model=32,
            n_heads=4,
            max_seq_len=128,
            attn_config={"kv_n_heads": 2, "rope_theta": 10_000.0, "clip_qkv": 8.0},
            ffn_config={"ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2},
        ),
        "deepseek_v2": just(**_LEADING, **_LATENT),
        "deepseek_v3": just(**_LEADING, **_LATENT),
        "dots1": just(**_LEADING, max_window_layers=3),
        "ernie4_5_moe": _ernie,
        "exaone_moe": just(**_LEADING),
        "flex_olmo": just(),
        "flint": just(mlp_only_layers=[0, 1]),
        "glm4_moe": just(**_LEADING),
        "glm4_moe_lite": _latent_mlp_list,
        "granitemoe": just(),
        "granitemoe_swa": lambda depth: {"layer_rope_theta": cycle(depth, 10_000.0, 5_000.0)},
        "granitemoeshared": just(),
        "hunyuan_v1_moe": just(moe_topk=2),
        "hy_v3": _mlp_list,
        "inkling2_loop_text": _inkling2_loop,
        "inkling2_text": _inkling2,
        "inkling_text": _inkling,
        "jetmoe": just(kv_channels=8, num_key_value_heads=2, num_attention_heads=4),
        "mimo_v2_flash": _mlp_list,
        "minimax_m2": just(),
        "mixtral": just(head_dim=UNSET, sliding_window=UNSET),
        "olmoe": just(),
        "phimoe": just(),
        "qwen2_moe": _qwen2_moe,
        "qwen3_moe": just(head_dim=8, decoder_sparse_step=2, mlp_only_layers=[3]),
        "sarvam_mla": just(**_LEADING, **_LATENT),
        "sarvam_moe": just(**_LEADING),
        "solar_open": just(),
        "zaya": lambda depth: {
            "layer_types": cycle(depth, "hybrid", "hybrid_sliding"),
            "num_experts_per_tok": 1,
            "router_hidden_size": 16,
        },
    }
) | {
    # Each of its blocks counts as two layers.
    "longcat_flash": Recipe(
        "longcat_flash",
        "D",
        just(
            **_LATENT,
            ffn_hidden_size=64,
            moe_topk=2,
            zero_expert_num=2,
            expert_ffn_hidden_size=16,
        ),
        depth_field="num_layers",
    ),
}
"""Model type -> recipe."""
