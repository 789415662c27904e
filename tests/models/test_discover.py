"""Finding the blocks of every kind of causal LM, and what is refused before."""

import pytest
from transformers import AutoConfig

from shoal.core.errors import UsageError
from shoal.models.discover import check_causal, depth_of, find_blocks
from shoal.testing.tiny import tiny_config, tiny_model

PATHS = {
    "llama": "model.layers",
    "gpt2": "transformer.h",
    "ctrl": "transformer.h",
    "openai-gpt": "transformer.h",
    "xlnet": "transformer.layer",
    "gpt_neox_japanese": "gpt_neox_japanese.layers",
    "bert": "bert.encoder.layer",
    "bart": "model.decoder.layers",
    "prophetnet": "prophetnet.decoder.layers",
    "reformer": "reformer.encoder.layers",
    "xlstm": "backbone.blocks",
    "blt": "model.global_transformer.layers",
    "longcat_flash": "model.layers",
    "gemma3[deep_tower]": "model.language_model.layers",
}


@pytest.mark.parametrize(("name", "path"), PATHS.items())
def test_blocks_are_found(name, path):
    blocks = find_blocks(tiny_model(name))
    assert blocks.path == path
    assert blocks.depth == depth_of(tiny_config(name)) == 6
    assert list(blocks.stacks) == [path]


def test_blocks_with_a_part_in_each_of_two_stacks():
    blocks = find_blocks(tiny_model("hrm_text"))
    assert list(blocks.stacks) == ["model.L_module.layers", "model.H_module.layers"]
    assert depth_of(tiny_config("hrm_text")) == 6


def test_encoders_pass_as_decoders_only():
    check_causal(tiny_config("bert"))
    with pytest.raises(UsageError, match="encoder-only"):
        check_causal(AutoConfig.for_model("bert"))
    with pytest.raises(UsageError, match="encoder-only"):
        check_causal(AutoConfig.for_model("reformer"))


def test_decoder_of_an_encoder_decoder_passes_alone():
    check_causal(tiny_model("bart").config)
    for kind in ("bart", "t5", "whisper"):
        with pytest.raises(UsageError, match="encoder-decoder"):
            check_causal(AutoConfig.for_model(kind))
