"""Which config fields depend on the number or the order of the blocks, by name.

Names, never shapes: many lists that have nothing to do with blocks happen to be as long as the
model is deep (`eos_token_id`, rotary factors), and an index list may be `range(depth)`.
"""

from shoal.core.mask import Part
from shoal.models import repair

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
        "moe_layer_interval",
        "expert_layer_period",
        "decoder_sparse_step",
        "layers_num_experts",
        "blocks with experts",
    }
)
"""Fields that say something about the MLP of a block; all others are about its attention."""


def side(name: str) -> Part:
    """The part of a block that a field is about."""
    return Part.MLP if name in MLP_SIDE else Part.ATTN


SLICED = repair.PER_BLOCK
"""Lists with one entry per block."""

PREDICTORS = repair.PREDICTORS
"""Counts of multi-token prediction heads, whose weights are dropped."""

INDEXED = {
    "mlp_only_layers": 0,
    "moe_layers": 0,
    "full_attn_idxs": 0,
    "attn_layer_indices": 0,
    "cross_attention_layers": 0,
    "rope_scaling_layers": 0,
    "hybrid_layer_ids": 0,
    "ple_layer_ids": 1,
}
"""Lists of block indices, with the number that they give to the first block."""

LEADING = (
    "first_k_dense_replace",
    "num_dense_layers",
    "max_window_layers",
)
"""How many of the first blocks differ from the rest."""

TRAILING = ("num_kv_shared_layers",)
"""How many of the last blocks differ from the rest."""

EXPLICIT = ("decoder_sparse_step", "attention_types", "block_types")
"""Periodic schedules that are written out block by block."""

RESCALED = ("scale_depth",)
"""Numbers that the model divides by the square root of its depth."""

DERIVED = ("layer_types", "mlp_layer_types", "layers_block_type", "layers_num_experts")
"""Per-block views that some config classes compute; they must come out as the slice."""

SECTIONS = (("n_input_layers", "n_recurrent_layers", "n_output_layers"),)
"""Fields that split the blocks into consecutive sections, each the number of its blocks."""

PACKED = {"embed_tokens_per_layer.weight": 1, "per_layer_model_projection.weight": 0}
"""Tensors outside the blocks that hold a slice per block, with the axis of the slices."""

FIRST_STAYS = {
    "modernbert-decoder": "it has no attention norm of its own",
    "rwkv": "it holds the norm of the embeddings",
}
"""Model types whose first block must stay, with the reason."""

ONLY_THE_END = {
    "beam": "the residual stream is scaled by the index of each block",
}
"""Model types of which only blocks at the end can go, with the reason."""

ONLY_THE_LAST = {
    "inkling2_text": "blocks attend to the residual streams of the blocks before them",
    "inkling2_loop_text": "blocks attend to the residual streams of the blocks before them",
}
"""Model types of which only the last block can go, with the reason."""

FIRST_IS_FULL = {"minimax"}
"""Model types whose cache counts its tokens in the first block, by its keys."""

LAST_IS_FULL = {"gemma4_text", "gemma4_unified_text"}
"""Model types whose config class makes the last block one with full attention."""

LOST_IN_FIRST = {"zaya": "router_states_scale"}
"""Tensor that the first block of a type does not have, by the last part of its name."""

ADDED_IN_LAST = {"gpt_neox_japanese": "attention.dense_bias"}
"""Tensor that only the last block of a type has; zeros where another block becomes the last."""

TIED_AT_LEAST = {"zamba": 2}
"""How many blocks of the kind `hybrid` the types need whose code ties their weights."""
