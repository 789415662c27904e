"""Decoders whose attention picks tokens by an index, or shares keys and values between blocks."""

from shoal.testing.zoo.recipe import Fields, Recipe, decoders, just
from shoal.testing.zoo.schedules import FULL, SLIDING, cycle, dense_first, lead

_LATENT = {"num_key_value_heads": 4}
_SHARED_INDEXERS = ("full", "full", "shared")


def _dense_first(depth: int) -> Fields:
    return _LATENT | {"mlp_layer_types": dense_first(depth)}


def _shared_indexers(depth: int) -> Fields:
    return _dense_first(depth) | {"indexer_types": cycle(depth, *_SHARED_INDEXERS)}


def _deepseek_v4(depth: int) -> Fields:
    kinds = ("heavily_compressed_attention", "compressed_sparse_attention", SLIDING)
    return {
        "head_dim": 16,
        "num_key_value_heads": 1,
        "partial_rotary_factor": 0.5,
        "layer_types": cycle(depth, *kinds),
        "mlp_layer_types": lead(depth, 2, "hash_moe", "moe"),
        "compress_rates": {
            "compressed_sparse_attention": 2,
            "heavily_compressed_attention": 8,
        },
        "hc_mult": 2,
        "o_groups": 2,
        "o_lora_rank": 8,
    }


def dots3(depth: int) -> Fields:
    """Every third block slides, with head counts and sizes of its own."""
    kinds = cycle(depth, "indexed_attention", "indexed_attention", SLIDING)
    # Where attention slides, its heads are fewer and its latent is wider.
    sliding = {
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "kv_lora_rank": 24,
        "qk_nope_head_dim": 16,
        "head_dim": 24,
    }
    return _LATENT | {
        "head_dim": 16,
        "mlp_layer_types": dense_first(depth),
        "layer_types": kinds,
        "shared_experts_intermediate_size": 16,
        "per_layer_config": {i: sliding for i, kind in enumerate(kinds) if kind == SLIDING},
    }


def _minimax_m3(depth: int) -> Fields:
    return {
        "dense_intermediate_size": 64,
        "rotary_dim": 4,
        "layer_types": cycle(depth, FULL, "minimax_m3_sparse"),
        "mlp_layer_types": dense_first(depth),
        "index_block_size": 4,
        "index_topk_blocks": 2,
        "index_local_blocks": 1,
    }


def gemma3n(depth: int) -> Fields:
    """The last two blocks read the keys and values of the two before them."""
    return {
        "layer_types": cycle(depth, SLIDING, FULL),
        "intermediate_size": cycle(depth, 64, 48),
        "activation_sparsity_pattern": lead(depth, depth // 2, 0.5, 0.0),
        "num_kv_shared_layers": 2,
        "vocab_size_per_layer_input": 128,
        "hidden_size_per_layer_input": 8,
        "altup_num_inputs": 2,
        "laurel_rank": 8,
    }


def gemma4_unified(depth: int) -> Fields:
    """Wider heads in the blocks with full attention; the last two blocks read others' keys."""
    return {
        "layer_types": cycle(depth, SLIDING, FULL),
        "num_kv_shared_layers": 2,
        "global_head_dim": 16,
    }


def gemma4(depth: int) -> Fields:
    """The same with embeddings per block."""
    return gemma4_unified(depth) | {
        "vocab_size_per_layer_input": 128,
        "hidden_size_per_layer_input": 8,
    }


INDEXED: dict[str, Recipe] = decoders(
    {
        "axk2": just(**_LATENT, first_k_dense_replace=2, gated_norm_rank=8),
        "deepseek_v32": just(**_LATENT, first_k_dense_replace=2),
        "deepseek_v4": _deepseek_v4,
        "dots3_note_text": dots3,
        "gemma3n_text": gemma3n,
        "gemma4_text": gemma4,
        "gemma4_unified_text": gemma4_unified,
        "glm_moe_dsa": _shared_indexers,
        "hy_v4": lambda depth: _shared_indexers(depth) | {"hc_mult": 2},
        "minimax_m3_vl_text": _minimax_m3,
    }
)
"""Model type -> recipe."""
