"""What most tiny models take, by the names that config classes use for it."""

from typing import Any

HIDDEN, VOCABULARY, POSITIONS, WINDOW = 32, 128, 128, 8

BASE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "max_position_embeddings": POSITIONS,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    # Width and heads.
    "hidden_size": HIDDEN,
    "intermediate_size": 64,
    "ffn_dim": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "sliding_window": WINDOW,
    # Experts.
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "num_shared_experts": 1,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 16,
    "shared_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    # Compressed and indexed attention.
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
    "index_topk": 8,
    "index_head_dim": 8,
    "index_n_heads": 2,
    # State spaces and linear attention.
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_d_state": 8,
    "mamba_expand": 2,
    "mamba_chunk_size": 8,
    "state_size": 8,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
"""Field -> value, used where a config class has the field."""

DROPOUTS = (
    "attention_dropout",
    "dropout",
    "hidden_dropout",
    "resid_pdrop",
    "embd_pdrop",
    "attn_pdrop",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "activation_dropout",
    "layerdrop",
    "decoder_layerdrop",
)
