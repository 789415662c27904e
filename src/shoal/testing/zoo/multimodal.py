"""Text models that carry towers for images or sound; the text alone is run."""

from typing import Any

from shoal.testing.zoo.decoders_hybrid import every_second, qwen4
from shoal.testing.zoo.decoders_indexed import dots3, gemma4, gemma4_unified
from shoal.testing.zoo.decoders_windows import gemma3, late_windows, llama4
from shoal.testing.zoo.recipe import Fields, Recipe, fields_of, just

TOWER_DEPTH = 2

_TOWER: Fields = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": TOWER_DEPTH,
    "num_attention_heads": 4,
    "image_size": 8,
    "patch_size": 4,
}
# Inside the vocabulary, so that an id can be embedded, and above what tests feed in.
_IMAGE, _VIDEO, _SOUND, _BEGIN, _END = 120, 121, 122, 123, 124


def _text(model_type: str, depth: int, own: Fields, **more: Any) -> Fields:
    fields = fields_of(model_type, own, num_hidden_layers=depth, **more)
    return {"model_type": model_type, **fields}


def _qwen_tower() -> Fields:
    return {
        "depth": TOWER_DEPTH,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 4,
        "patch_size": 4,
        "out_hidden_size": 32,
        "num_position_embeddings": 16,
    }


def _qwen(text: Fields) -> Fields:
    return {
        "text_config": text,
        "vision_config": _qwen_tower(),
        "image_token_id": _IMAGE,
        "video_token_id": _VIDEO,
        "vision_start_token_id": _BEGIN,
        "vision_end_token_id": _END,
    }


def _blt(depth: int) -> Fields:
    local: Fields = {
        "vocab_size": 128,
        "hidden_size": 16,
        "hidden_size_global": 32,
        "num_attention_heads": 4,
        "intermediate_size": 32,
        "max_position_embeddings": 128,
    }
    return {
        "patch_size": 2,
        "encoder_hash_byte_group_size": [2, 3],
        "encoder_hash_byte_group_vocab": 64,
        "local_attention_window_len": 64,
        "patcher_config": {
            "vocab_size": 128,
            "hidden_size": 16,
            "num_attention_heads": 4,
            "num_hidden_layers": 1,
            "intermediate_size": 32,
        },
        "encoder_config": local | {"num_hidden_layers": 1},
        "decoder_config": local | {"num_hidden_layers": 2},
        "global_config": {
            "hidden_size": 32,
            "num_attention_heads": 4,
            "num_hidden_layers": depth,
            "intermediate_size": 64,
            "max_position_embeddings": 128,
        },
    }


def _dots3(depth: int) -> Fields:
    vision = _TOWER | {
        "moe_intermediate_size": 16,
        "mlp_layer_types": ["dense", "sparse"],
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "adapter_in_dim": 32,
        "adapter_out_dim": 32,
    }
    sound = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": TOWER_DEPTH,
        "num_attention_heads": 4,
        "feature_size": 16,
        "downsample_hidden_size": 8,
        "adapter_input_size": 32,
        "adapter_out_dim": 32,
    }
    return {
        "text_config": _text("dots3_note_text", depth, dots3(depth)),
        "vision_config": {n: v for n, v in vision.items() if n != "image_size"},
        "audio_config": sound,
        "image_token_id": _IMAGE,
        "video_token_id": _VIDEO,
        "audio_token_id": _SOUND,
    }


def gemma3_with_tower(depth: int, tower_depth: int = TOWER_DEPTH) -> Fields:
    """Gemma 3 with a vision tower of any depth."""
    return {
        "text_config": _text("gemma3_text", depth, gemma3),
        "vision_config": _TOWER
        | {"model_type": "siglip_vision_model", "num_hidden_layers": tower_depth},
        "mm_tokens_per_image": 4,
        "image_token_index": _IMAGE,
        "boi_token_index": _BEGIN,
        "eoi_token_index": _END,
    }


def _gemma4(text: Fields) -> Fields:
    return {
        "text_config": text,
        "image_token_id": _IMAGE,
        "video_token_id": _VIDEO,
        "audio_token_id": _SOUND,
        "boi_token_id": _BEGIN,
        "eoi_token_id": _END,
        "boa_token_id": 125,
        "eoa_token_index": 126,
    }


def _got_ocr2(depth: int) -> Fields:
    tower = {
        "hidden_size": 32,
        "output_channels": 16,
        "num_hidden_layers": TOWER_DEPTH,
        "num_attention_heads": 4,
        "image_size": 16,
        "patch_size": 4,
        "window_size": 2,
        "global_attn_indexes": [1],
        "mlp_dim": 64,
    }
    return {
        "text_config": _text("qwen2", depth, late_windows),
        "vision_config": tower,
        "image_token_index": _IMAGE,
    }


def _llama4(depth: int) -> Fields:
    tower = _TOWER | {
        "vision_output_dim": 32,
        "projector_input_dim": 32,
        "projector_output_dim": 32,
    }
    return {
        "text_config": _text("llama4_text", depth, llama4(depth)),
        "vision_config": tower,
        "image_token_index": _IMAGE,
        "boi_token_index": _BEGIN,
        "eoi_token_index": _END,
    }


def _moshi(depth: int) -> Fields:
    return {
        "ffn_dim": 64,
        "num_codebooks": 2,
        "audio_vocab_size": 32,
        "audio_encoder_config": {
            "model_type": "mimi",
            "hidden_size": 16,
            "num_filters": 4,
            "codebook_size": 32,
            "codebook_dim": 8,
            "vector_quantization_hidden_dimension": 8,
            "num_quantizers": 2,
            "upsample_groups": 16,
            "num_hidden_layers": TOWER_DEPTH,
            "intermediate_size": 32,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "head_dim": 8,
        },
        "depth_decoder_config": {
            "hidden_size": 16,
            "num_hidden_layers": TOWER_DEPTH,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "ffn_dim": 32,
        },
    }


def _moss(depth: int) -> Fields:
    tower = {
        "num_mel_bins": 8,
        "num_hidden_layers": TOWER_DEPTH,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "hidden_size": 32,
        "max_source_positions": 16,
    }
    return {
        "text_config": _text("qwen3", depth, late_windows),
        "audio_config": tower,
        "audio_token_id": _SOUND,
    }


def _phi4(depth: int) -> Fields:
    sound = {
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_blocks": 1,
        "num_attention_heads": 4,
        "ext_pw_out_channel": 32,
        "depthwise_separable_out_channel": 32,
        "input_size": 16,
        "nemo_conv_channels": 8,
        "audio_token_id": _SOUND,
    }
    sight = _TOWER | {"crop_size": 8, "image_token_id": _IMAGE}
    return {"vision_config": sight, "audio_config": sound}


_COMPOSITE = {
    "blt": _blt,
    "dots3_note": _dots3,
    "fuyu": lambda depth: {
        "text_config": _text("persimmon", depth, {}),
        "image_token_id": _IMAGE,
        "patch_size": 2,
    },
    "gemma3": gemma3_with_tower,
    "gemma4": lambda depth: _gemma4(_text("gemma4_text", depth, gemma4(depth))),
    "gemma4_unified": lambda depth: _gemma4(
        _text("gemma4_unified_text", depth, gemma4_unified(depth))
    ),
    "got_ocr2": _got_ocr2,
    "llama4": _llama4,
    "moss_transcribe_diarize": _moss,
    "qwen3_5": lambda depth: _qwen(_text("qwen3_5_text", depth, every_second)),
    "qwen3_5_moe": lambda depth: _qwen(_text("qwen3_5_moe_text", depth, every_second)),
    "qwen4_exp": lambda depth: _qwen(_text("qwen4_exp_text", depth, qwen4(depth))),
}

MULTIMODAL: dict[str, Recipe] = {
    name: Recipe(name, "D" if name == "blt" else "M", own, depth_field=None)
    for name, own in _COMPOSITE.items()
} | {
    "git": Recipe("git", "M", just(vision_config=_TOWER)),
    "moshi": Recipe("moshi", "M", _moshi),
    "phi4_multimodal": Recipe("phi4_multimodal", "M", _phi4),
}
"""Model type -> recipe. BLT has no towers, but its blocks are a part among parts as well."""
