"""Decoders that mix full attention with attention over a window, and with no position at all."""

from shoal.testing.zoo.recipe import UNSET, Fields, Recipe, decoders, just
from shoal.testing.zoo.schedules import FULL, SLIDING, cycle, lead, rotary


def _sliding_first(depth: int) -> Fields:
    return {"layer_types": cycle(depth, SLIDING, FULL)}


def _full_first(depth: int) -> Fields:
    return {"layer_types": cycle(depth, FULL, SLIDING)}


def _gemma2(depth: int) -> Fields:
    return _sliding_first(depth) | {
        "query_pre_attn_scalar": 8,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 30.0,
    }


def _gpt_neo(depth: int) -> Fields:
    return {
        "num_heads": 4,
        "window_size": 8,
        "attention_types": [[["global", "local"], depth // 2]]
        + ([[["global"], 1]] if depth % 2 else []),
    }


def _gpt_oss(depth: int) -> Fields:
    rope = {"rope_type": "default", "rope_theta": 10_000.0}
    return _sliding_first(depth) | {"rope_parameters": rope}


def _rope_bases(depth: int) -> Fields:
    # The window's default pattern is one full block in four.
    return {"layer_rope_theta": cycle(depth, 10_000.0, 5_000.0), "residual_multiplier": 0.7}


def _compass(depth: int) -> Fields:
    return _full_first(depth) | {"rope_parameters": rotary(FULL, SLIDING)}


def _laguna(depth: int) -> Fields:
    return _full_first(depth) | {
        "num_attention_heads_per_layer": cycle(depth, 4, 2),
        "mlp_layer_types": lead(depth, 2, "dense", "sparse"),
    }


def _mellum(depth: int) -> Fields:
    return _full_first(depth) | {"mlp_layer_types": lead(depth, 2, "dense", "sparse")}


def llama4(depth: int) -> Fields:
    """Experts in every second block, no rotary positions in every third."""
    return {
        "intermediate_size_mlp": 64,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 2,
        "no_rope_layer_interval": 3,
        "attention_chunk_size": 8,
    }


late_windows: Fields = {"use_sliding_window": True, "max_window_layers": 3}
"""Attention slides from the fourth block on."""

gemma3: Fields = {
    "query_pre_attn_scalar": 8,
    "sliding_window_pattern": 3,
}
"""Every third block has full attention."""

WINDOWS: dict[str, Recipe] = decoders(
    {
        "cohere2": just(),
        "cohere_compass_text": _compass,
        "cwm": just(),
        "exaone4": just(),
        "gemma2": _gemma2,
        "gemma3_text": just(**gemma3),
        "gpt_neo": _gpt_neo,
        "gpt_oss": _gpt_oss,
        "granite_swa": _rope_bases,
        "kolibri1": just(),
        "laguna": _laguna,
        "llama4_text": llama4,
        "mellum": _mellum,
        "ministral": _sliding_first,
        "modernbert-decoder": just(local_attention=16),
        "olmo3": just(),
        "qwen2": just(**late_windows),
        "qwen3": just(**late_windows),
        "smollm3": just(no_rope_layer_interval=3, sliding_window=UNSET),
        "vaultgemma": just(query_pre_attn_scalar=8),
    }
)
"""Model type -> recipe. Those without a list of their own derive one that is mixed."""
