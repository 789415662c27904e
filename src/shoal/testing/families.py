"""The configs of the tiny models: one entry per family, with its per-block differences on."""

from collections.abc import Callable
from typing import Any

BASE: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
"""What most families take."""

_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}


def _alternating(depth: int, first: str, second: str) -> list[str]:
    return [second if i % 2 else first for i in range(depth)]


def _gpt2(depth: int) -> dict[str, Any]:
    return {"n_embd": 32, "n_head": 4, "n_positions": 128, "n_inner": 64}


def _gpt_neo(depth: int) -> dict[str, Any]:
    return {
        "num_heads": 4,
        "window_size": 8,
        "attention_types": [[["global", "local"], depth // 2]]
        + ([[["global"], 1]] if depth % 2 else []),
    }


def _deepseek(depth: int) -> dict[str, Any]:
    return {
        "first_k_dense_replace": 2,
        "kv_lora_rank": 16,
        "q_lora_rank": 16,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 8,
        "v_head_dim": 8,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
        "moe_intermediate_size": 16,
        "num_key_value_heads": 4,
    }


def _granite_hybrid(depth: int) -> dict[str, Any]:
    return {
        "layer_types": _alternating(depth, "linear_attention", "full_attention"),
        "mamba_n_heads": 4,
        "mamba_d_head": 16,
        "mamba_d_state": 8,
        "mamba_expand": 2,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 32,
    }


def _lfm2(depth: int) -> dict[str, Any]:
    kinds = _alternating(depth, "conv", "full_attention")
    return {"layer_types": kinds, "block_auto_adjust_ff_dim": False}


def _llama4(depth: int) -> dict[str, Any]:
    return {
        "head_dim": 8,
        "intermediate_size_mlp": 64,
        "num_local_experts": 4,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 2,
        "no_rope_layer_interval": 3,
        "attention_chunk_size": 8,
    }


def _mixed(**more: Any) -> Callable[[int], dict[str, Any]]:
    def fields(depth: int) -> dict[str, Any]:
        kinds = _alternating(depth, "sliding_attention", "full_attention")
        return {"sliding_window": 8, "layer_types": kinds, **more}

    return fields


def _just(**fields: Any) -> Callable[[int], dict[str, Any]]:
    return lambda depth: fields


FAMILIES: dict[str, Callable[[int], dict[str, Any]]] = {
    "llama": _just(),
    "qwen2": _just(use_sliding_window=True, sliding_window=8, max_window_layers=3),
    "qwen3": _just(use_sliding_window=True, sliding_window=8, max_window_layers=3, head_dim=8),
    "mistral": _just(sliding_window=8),
    "gemma2": _mixed(
        head_dim=8,
        query_pre_attn_scalar=8,
        attn_logit_softcapping=5.0,
        final_logit_softcapping=30.0,
    ),
    "gemma3_text": _just(
        head_dim=8, query_pre_attn_scalar=8, sliding_window=8, sliding_window_pattern=3
    ),
    "phi3": _just(),
    "gpt2": _gpt2,
    "opt": _just(ffn_dim=64, word_embed_proj_dim=32),
    "gpt_neox": _just(),
    "falcon": _just(alibi=False, new_decoder_architecture=True, num_kv_heads=2),
    "bloom": _just(n_head=4),
    "olmo2": _just(),
    "stablelm": _just(),
    "granite": _just(residual_multiplier=0.7, logits_scaling=4.0),
    "cohere": _just(logit_scale=0.5),
    "qwen3_moe": _just(**_EXPERTS, head_dim=8, decoder_sparse_step=2, mlp_only_layers=[3]),
    "mixtral": _just(num_local_experts=4, num_experts_per_tok=2),
    "gpt_oss": _mixed(
        num_local_experts=4,
        num_experts_per_tok=2,
        head_dim=8,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
    ),
    "smollm3": _just(no_rope_layer_interval=3),
    "deepseek_v3": _deepseek,
    "gpt_neo": _gpt_neo,
    "granitemoehybrid": _granite_hybrid,
    "lfm2": _lfm2,
    "llama4_text": _llama4,
}
"""Family (a transformers model type) -> depth -> the fields that differ from `BASE`."""
