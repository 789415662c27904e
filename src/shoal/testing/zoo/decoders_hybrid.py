"""Decoders without attention, with attention in some blocks only, and with looped blocks."""

from shoal.testing.zoo.recipe import UNSET, Fields, Recipe, decoders, just
from shoal.testing.zoo.schedules import FULL, LINEAR, cycle, dense_first

every_second: Fields = {"full_attention_interval": 2}
"""Linear and full attention in turn, in the shorthand of the Qwen types."""


def linear_and_full(depth: int) -> Fields:
    """Linear and full attention in turn."""
    return {"layer_types": cycle(depth, LINEAR, FULL)}


def _granite_hybrid(depth: int) -> Fields:
    return linear_and_full(depth) | {"shared_intermediate_size": 32, "mamba_chunk_size": UNSET}


def _kimi(depth: int) -> Fields:
    return linear_and_full(depth) | {
        "num_key_value_heads": 4,
        "mlp_layer_types": dense_first(depth),
        "linear_head_dim": 8,
        "linear_num_heads": 4,
    }


def _lfm2(depth: int) -> Fields:
    return {"layer_types": cycle(depth, "conv", FULL), "block_auto_adjust_ff_dim": False}


def _lfm2_moe(depth: int) -> Fields:
    return {"layer_types": cycle(depth, "conv", FULL), "num_dense_layers": 2}


def nemotron(depth: int) -> Fields:
    """Every block is one mixer; two of six are attention."""
    kinds = (LINEAR, "moe", FULL, "mlp", FULL, LINEAR)
    return {
        "layers_block_type": cycle(depth, *kinds),
        "ssm_state_size": 8,
        "mamba_num_heads": 4,
        "mamba_head_dim": 16,
        "n_groups": 2,
        "chunk_size": 8,
        "moe_shared_expert_intermediate_size": 16,
    }


def qwen4(depth: int) -> Fields:
    """Hashed n-grams enter three of the blocks with linear attention."""
    return {
        "layer_types": cycle(depth, LINEAR, "indexed_attention", LINEAR),
        "ple_layer_ids": [i + 1 for i in (0, 2, 5) if i < depth],
        "ple_embed_dim": 16,
        "ngram_size": 3,
        "heads_per_ngram": 2,
        "ngram_vocab_size_base": 50,
        "make_ngram_vocab_size_divisible_by": 8,
        "split_ngram_parts": 2,
        "hc_count": 2,
        "hc_lowrank": 8,
        "indexer_n_heads": 2,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 8,
        "indexer_budget": 8,
        "indexer_compress_ratio": 2,
    }


def _jamba(depth: int) -> Fields:
    return {
        "attn_layer_period": 3,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "mamba_dt_rank": 4,
        "use_mamba_kernels": False,
    }


def _recurrent_gemma(depth: int) -> Fields:
    return {
        "block_types": ["recurrent", "attention"],
        "attention_window_size": 8,
        "lru_width": 32,
    }


def _reformer(depth: int) -> Fields:
    return {
        "attn_layers": cycle(depth, "local", "lsh"),
        "attention_head_size": 8,
        "axial_pos_shape": [8, 16],
        "axial_pos_embds_dim": [16, 16],
        "feed_forward_size": 64,
        "local_attn_chunk_length": 8,
        "lsh_attn_chunk_length": 8,
        "num_buckets": 2,
        "hash_seed": 0,
        "local_attention_probs_dropout_prob": 0.0,
        "is_decoder": True,
    }


def zamba2(depth: int) -> Fields:
    """Every second block also runs a shared transformer, two of which take turns."""
    return {
        "layers_block_type": cycle(depth, LINEAR, "hybrid"),
        "num_mem_blocks": 2,
        "use_shared_attention_adapter": True,
        "adapter_rank": 4,
        "n_mamba_heads": 4,
        "mamba_ngroups": 1,
        "chunk_size": 8,
        "use_mamba_kernels": False,
        "use_mem_rope": True,
        "num_key_value_heads": 4,
        "head_dim": UNSET,
    }


def _dory(depth: int) -> Fields:
    return {
        "n_input_layers": 2,
        "n_output_layers": 2,
        "n_recurrent_loops": 2,
        "layer_types": cycle(depth, "sliding_attention", FULL),
    }


HYBRID: dict[str, Recipe] = decoders(
    {
        "bailing_hybrid": just(
            layer_group_size=3, num_key_value_heads=4, num_expert_group=1, topk_group=1
        ),
        "bamba": lambda depth: {"attn_layer_indices": list(range(1, depth, 3))},
        "dory": _dory,
        "falcon_h1": just(mamba_d_ssm=32, mamba_d_head=8, ssm_out_multiplier=0.5),
        "falcon_mamba": just(use_mambapy=False, use_associative_scan=False),
        "granitemoehybrid": _granite_hybrid,
        "hrm_text": just(H_cycles=1, L_cycles=2, L_bp_cycles=[1], embedding_scale=4.0),
        "jamba": _jamba,
        "kimi_linear": _kimi,
        "lara_mini": just(),
        "lfm2": _lfm2,
        "lfm2_moe": _lfm2_moe,
        "lfm3": just(),
        "mamba": just(),
        "mamba2": just(num_heads=8, n_groups=2, chunk_size=8),
        "minimax": just(block_size=8, linear_attn_alpha_factor=1.25, full_attn_beta_factor=0.75),
        "olmo_hybrid": linear_and_full,
        "qwen3_5_moe_text": just(**every_second),
        "qwen3_5_text": just(**every_second),
        "qwen3_next": just(**every_second, decoder_sparse_step=2, mlp_only_layers=[3]),
        "qwen4_exp_text": qwen4,
        "recurrent_gemma": _recurrent_gemma,
        "reformer": _reformer,
        "rwkv": just(attention_hidden_size=32),
        "xlnet": just(d_model=32, n_head=4, d_inner=64, d_head=8, max_position_embeddings=UNSET),
        "xlstm": just(num_heads=4, embedding_dim=32),
        "zamba": just(
            attn_layer_period=2,
            attn_layer_offset=1,
            num_key_value_heads=4,
            use_mamba_kernels=False,
            head_dim=UNSET,
        ),
        "zamba2": zamba2,
    }
) | {
    "nemotron_h": Recipe("nemotron_h", "D", nemotron, depth_field=None),
}
"""Model type -> recipe."""
