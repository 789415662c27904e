"""Which config fields depend on the number or the order of the blocks, by name.

Names, never shapes: many lists that have nothing to do with blocks happen to be as long as the
model is deep (`eos_token_id`, rotary factors), and an index list may be `range(depth)`.
"""

from shoal.core.mask import Part

MLP_SIDE = frozenset(
    {
        "mlp_layer_types",
        "activation_sparsity_pattern",
        "intermediate_size",
        "moe_intermediate_size",
        "num_experts",
        "num_shared_expert",
        "moe_topk",
        "mlp_only_layers",
        "moe_layers",
        "first_k_dense_replace",
        "num_dense_layers",
        "moe_layer_start_index",
        "moe_layer_end_index",
        "decoder_sparse_step",
        "layers_num_experts",
        "blocks with experts",
    }
)
"""Fields that say something about the MLP of a block; all others are about its attention."""


def side(name: str) -> Part:
    """The part of a block that a field is about."""
    return Part.MLP if name in MLP_SIDE else Part.ATTN


SLICED = (
    "layer_types",
    "mlp_layer_types",
    "layers_block_type",
    "attn_layers",
    "attention_layers",
    "no_rope_layers",
    "indexer_types",
    "layer_rope_theta",
    "num_attention_heads_per_layer",
    "activation_sparsity_pattern",
    "intermediate_size",
    "moe_intermediate_size",
    "num_experts",
    "num_shared_expert",
    "moe_topk",
)
"""Lists with one entry per block. Some are plain numbers in most models; those are left alone."""

INDEXED = {
    "mlp_only_layers": 0,
    "moe_layers": 0,
    "full_attn_idxs": 0,
    "attn_layer_indices": 0,
    "cross_attention_layers": 0,
    "rope_scaling_layers": 0,
    "ple_layer_ids": 1,
}
"""Lists of block indices, with the number that they give to the first block."""

LEADING = (
    "first_k_dense_replace",
    "num_dense_layers",
    "max_window_layers",
    "moe_layer_start_index",
)
"""How many of the first blocks differ from the rest."""

TRAILING = ("num_kv_shared_layers",)
"""How many of the last blocks differ from the rest."""

LAST = ("moe_layer_end_index",)
"""Index of the last block of a kind."""

EXPLICIT = ("decoder_sparse_step", "attention_types", "block_types")
"""Periodic schedules that are written out block by block."""

RESCALED = ("scale_depth",)
"""Numbers that the model divides by the square root of its depth."""

PREDICTORS = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers")
"""Counts of multi-token prediction heads, whose weights are dropped."""

DERIVED = ("layer_types", "mlp_layer_types", "layers_block_type", "layers_num_experts")
"""Per-block views that some config classes compute; they must come out as the slice."""

NEVER = {
    "beam": "its residual stream is scaled by position, so no skipped block can be expressed",
    "dory": "its stack of blocks is run in a loop",
    "hrm_text": "its two stacks of blocks are run in a loop",
    "inkling2_text": "its blocks attend to the residual streams of other blocks",
    "inkling2_loop_text": "its blocks attend to the residual streams of other blocks",
    "longcat_flash": "each of its blocks counts as two layers",
    "zamba": "its blocks share one transformer whose weights are stored in one of them",
    "zamba2": "its blocks share transformers whose weights are stored in some of them",
}
"""Model types that cannot lose a block, with the reason."""

FIRST_STAYS = {
    "modernbert-decoder": "block 0 has no attention norm of its own",
    "rwkv": "block 0 holds the norm of the embeddings",
    "zaya": "block 0 has fewer parameters than the others",
}
"""Model types whose first block must stay, with the reason."""

LAST_STAYS = {
    "gpt_neox_japanese": "only the last block has a bias in its output projection",
}
"""Model types whose last block must stay, with the reason."""
