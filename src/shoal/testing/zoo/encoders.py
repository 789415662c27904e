"""Encoders with a causal head, and the decoders of encoder-decoder models."""

from typing import Any

from shoal.testing.zoo.recipe import Recipe, decoders, just

_CAUSAL = {"is_decoder": True, "type_vocab_size": 2}
# Learned positions start behind the padding id.
_OFFSET = _CAUSAL | {"max_position_embeddings": 130}

ENCODERS: dict[str, Recipe] = decoders(
    {
        "bert": just(**_CAUSAL),
        "bert-generation": just(is_decoder=True),
        "big_bird": just(**_CAUSAL, attention_type="original_full"),
        "camembert": just(**_OFFSET),
        "data2vec-text": just(**_OFFSET),
        "electra": just(**_CAUSAL, embedding_size=16),
        "ernie": just(**_CAUSAL),
        "megatron-bert": just(**_CAUSAL),
        "rembert": just(**_CAUSAL, input_embedding_size=16, output_embedding_size=48),
        "roberta": just(**_OFFSET),
        "roberta-prelayernorm": just(**_OFFSET),
        "roc_bert": just(
            **_CAUSAL,
            pronunciation_embed_dim=8,
            pronunciation_vocab_size=16,
            shape_embed_dim=8,
            shape_vocab_size=16,
        ),
        "roformer": just(**_CAUSAL, embedding_size=16),
        "xlm-roberta": just(**_OFFSET),
        "xlm-roberta-xl": just(**_OFFSET),
        "xmod": just(**_OFFSET, default_language="en_XX"),
    },
    "E",
)
"""Model type -> recipe."""


def _bart(depth: int, **more: Any) -> dict[str, Any]:
    return {
        "d_model": 32,
        # The cache of the decoder is made as long as the encoder is deep.
        "encoder_layers": depth,
        "decoder_layers": depth,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64,
        "decoder_start_token_id": 1,
        **more,
    }


def _prophet(depth: int) -> dict[str, Any]:
    return {
        "num_encoder_layers": depth,
        "num_decoder_layers": depth,
        "num_encoder_attention_heads": 4,
        "num_decoder_attention_heads": 4,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64,
        "decoder_start_token_id": 1,
    }


def _trocr(depth: int) -> dict[str, Any]:
    return {
        "d_model": 32,
        "decoder_layers": depth,
        "decoder_attention_heads": 4,
        "decoder_ffn_dim": 64,
        "decoder_start_token_id": 1,
        "cross_attention_hidden_size": 32,
    }


def _whisper(depth: int) -> dict[str, Any]:
    return _bart(
        depth,
        num_mel_bins=8,
        max_source_positions=32,
        max_target_positions=128,
        begin_suppress_tokens=None,
    )


_DECODERS = {
    "bart": _bart,
    "bigbird_pegasus": lambda depth: _bart(depth, attention_type="original_full"),
    "blenderbot": _bart,
    "blenderbot-small": _bart,
    "marian": lambda depth: _bart(depth, decoder_vocab_size=128),
    "mbart": _bart,
    "mvp": _bart,
    "pegasus": _bart,
    "plbart": _bart,
    "prophetnet": _prophet,
    "trocr": _trocr,
    "whisper": _whisper,
}

DECODERS: dict[str, Recipe] = {
    name: Recipe(name, "X", own, depth_field=None) for name, own in _DECODERS.items()
}
"""Model type -> recipe. The encoder's depth differs, so that one cannot pass for the other."""
