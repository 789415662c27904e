"""Finding the decoder blocks of a causal LM by rule.

The blocks are the one `ModuleList` whose length is the config's depth and whose elements are
`GradientCheckpointingLayer`s. Over the causal LMs of transformers 5.24 this names exactly one list
for nearly every type; a short table covers the layers that do not derive from that class.
"""

from dataclasses import dataclass

from torch import nn
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_layers import GradientCheckpointingLayer

from shoal.core.errors import UnsupportedModelError, UsageError

PATHS = {
    "ctrl": "transformer.h",
    "openai-gpt": "transformer.h",
    "gpt_neox_japanese": "gpt_neox_japanese.layers",
    "xlnet": "transformer.layer",
}
"""Block list of the types whose layers are plain modules."""


@dataclass(frozen=True)
class Blocks:
    """The decoder blocks of a model.

    Attributes:
        path: Dotted path of the list inside the model, e.g. `model.layers`.
        layers: The list itself.
    """

    path: str
    layers: nn.ModuleList

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return len(self.layers)


def text_config(config: PreTrainedConfig) -> PreTrainedConfig:
    """The part of a config that describes the decoder: itself, or a nested text config."""
    nested = config.get_text_config(decoder=True)
    flat = getattr(config, "is_encoder_decoder", False) and type(nested) is type(config)
    return config if flat else nested


def depth_of(config: PreTrainedConfig) -> int:
    """Number of decoder blocks that a config asks for.

    Raises:
        UnsupportedModelError: If the config states no depth.
    """
    depth = getattr(text_config(config), "num_hidden_layers", None)
    if not isinstance(depth, int):
        raise UnsupportedModelError(
            f"a {config.model_type} config states no number of blocks (num_hidden_layers)."
        )
    return depth


def max_positions(config: PreTrainedConfig) -> int | None:
    """Most tokens that a model can take, or None where it states no limit."""
    positions = getattr(text_config(config), "max_position_embeddings", None)
    return positions if isinstance(positions, int) and positions > 0 else None


def check_causal(config: PreTrainedConfig) -> None:
    """Refuse a config that is not a decoder-only causal LM.

    Raises:
        UsageError: If it is an encoder, or an encoder with a decoder.
    """
    kind = config.model_type
    if getattr(config, "is_encoder_decoder", False):
        raise UsageError(
            f"{kind} is an encoder-decoder model; shoal prunes decoder-only causal LMs."
        )
    is_encoder = type(config) in MODEL_FOR_MASKED_LM_MAPPING and not getattr(
        config, "is_decoder", False
    )
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING or is_encoder:
        raise UsageError(
            f"{kind} is not a causal language model"
            + (" (an encoder-only model)" if type(config) in MODEL_FOR_MASKED_LM_MAPPING else "")
            + "; shoal prunes the models of AutoModelForCausalLM."
        )


def find_blocks(model: PreTrainedModel) -> Blocks:
    """Find the list of decoder blocks.

    Raises:
        UnsupportedModelError: If there is none, or more than one.
    """
    depth = depth_of(model.config)
    override = PATHS.get(model.config.model_type)
    found = [
        (path, module)
        for path, module in model.named_modules()
        if isinstance(module, nn.ModuleList)
        and len(module) == depth
        and (path == override or isinstance(module[0], GradientCheckpointingLayer))
    ]
    if len(found) > 1:
        # A vision or audio tower may happen to be as deep as the decoder.
        inside = {id(module) for module in model.get_decoder().modules()}
        found = [(path, module) for path, module in found if id(module) in inside]
    if len(found) != 1:
        where = ", ".join(path for path, _ in found) or "none"
        raise UnsupportedModelError(
            f"cannot tell the decoder blocks of {type(model).__name__}: expected one list of "
            f"{depth} layers, found {where}."
        )
    return Blocks(*found[0])
