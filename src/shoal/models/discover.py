"""Finding the decoder blocks of a causal LM by rule.

The blocks are the outermost `ModuleList` that is as long as the config says the model is deep; of
several, the one whose elements are `GradientCheckpointingLayer`s, or that `get_decoder` contains.
Over the causal LMs of transformers 5.24 this names exactly one list for every type but one, whose
blocks have a part in each of two stacks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import nn
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_layers import GradientCheckpointingLayer

from shoal.core.errors import UnsupportedModelError, UsageError
from shoal.models.auto import takes_images

STACKS = {"hrm_text": ("model.L_module.layers", "model.H_module.layers")}
"""Block lists of the types whose blocks have a part in each of several stacks."""

OWNERS = {"blt": "global_config"}
"""Part of the config that asks for the blocks, where it is not the text config."""

DEPTH_FIELDS = ("decoder_layers", "num_decoder_layers", "num_layers_per_stack")
"""What decoders of encoder-decoders and looped stacks call their depth, most telling first."""

DEPTH_FIELD_OF = {"longcat_flash": "num_layers", "xlstm": "num_blocks"}
"""Depth field of the types in which `num_hidden_layers` is something else."""


@dataclass(frozen=True)
class Blocks:
    """The decoder blocks of a model.

    Attributes:
        path: Dotted path of the list inside the model, e.g. `model.layers`.
        layers: The list itself.
        twins: Path -> further lists, where block i has a part in each of several stacks.
    """

    path: str
    layers: nn.ModuleList
    twins: Mapping[str, nn.ModuleList] = field(default_factory=dict)

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return len(self.layers)

    @property
    def stacks(self) -> dict[str, nn.ModuleList]:
        """Path -> list of all lists that hold parts of the blocks, nearly always just one."""
        return {self.path: self.layers, **self.twins}


def text_config(config: PreTrainedConfig) -> PreTrainedConfig:
    """The part of a config that describes the decoder: itself, or a nested text config."""
    owner = OWNERS.get(config.model_type)
    if owner is not None:
        part: PreTrainedConfig = getattr(config, owner)
        return part
    nested = config.get_text_config(decoder=True)
    # A flat config of an encoder-decoder would come back as a copy.
    return config if type(nested) is type(config) else nested


def depth_field(text: PreTrainedConfig) -> str:
    """The field of a decoder's config that holds the number of its blocks."""
    known = DEPTH_FIELD_OF.get(text.model_type)
    named = (name for name in DEPTH_FIELDS if isinstance(getattr(text, name, None), int))
    return known or next(named, "num_hidden_layers")


def depth_of(config: PreTrainedConfig) -> int:
    """Number of decoder blocks that a config asks for.

    Raises:
        UnsupportedModelError: If the config states no depth.
    """
    text = text_config(config)
    name = depth_field(text)
    depth = getattr(text, name, None)
    if not isinstance(depth, int):
        raise UnsupportedModelError(
            f"a {config.model_type} config states no number of blocks ({name})."
        )
    return depth


def max_positions(config: PreTrainedConfig) -> int | None:
    """Most tokens that a model can take, or None where it states no limit."""
    positions = getattr(text_config(config), "max_position_embeddings", None)
    return positions if isinstance(positions, int) and positions > 0 else None


def check_causal(config: PreTrainedConfig) -> None:
    """Refuse a config that transformers makes no causal decoder of.

    A wrapper that also takes images passes: its language model is pruned. The decoder of an
    encoder-decoder passes where it was saved by itself.

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
    known = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING or takes_images(config)
    if not known or is_encoder:
        raise UsageError(
            f"{kind} is not a causal language model"
            + (" (an encoder-only model)" if type(config) in MODEL_FOR_MASKED_LM_MAPPING else "")
            + "; shoal prunes the models of AutoModelForCausalLM and AutoModelForImageTextToText."
        )


def find_blocks(model: PreTrainedModel) -> Blocks:
    """Find the list of decoder blocks.

    Raises:
        UnsupportedModelError: If there is none, or more than one.
    """
    depth = depth_of(model.config)
    stacks = STACKS.get(model.config.model_type)
    if stacks is not None:
        first, *others = ((path, _as_list(model, path)) for path in stacks)
        return Blocks(*first, dict(others))
    found = _outermost(
        {
            path: module
            for path, module in model.named_modules()
            if isinstance(module, nn.ModuleList) and len(module) == depth
        }
    )
    if len(found) > 1:
        wrapped = {p: m for p, m in found.items() if isinstance(m[0], GradientCheckpointingLayer)}
        found = wrapped or found
    if len(found) > 1:
        # A vision or audio tower may happen to be as deep as the decoder.
        inside = {id(module) for module in model.get_decoder().modules()}
        found = {path: module for path, module in found.items() if id(module) in inside}
    if len(found) != 1:
        where = ", ".join(found) or "none"
        raise UnsupportedModelError(
            f"cannot tell the decoder blocks of {type(model).__name__}: expected one list of "
            f"{depth} layers, found {where}."
        )
    return Blocks(*next(iter(found.items())))


def _outermost(lists: dict[str, nn.ModuleList]) -> dict[str, nn.ModuleList]:
    return {p: m for p, m in lists.items() if not any(p.startswith(f"{q}.") for q in lists)}


def _as_list(model: PreTrainedModel, path: str) -> nn.ModuleList:
    found = model.get_submodule(path)
    if not isinstance(found, nn.ModuleList):
        raise UnsupportedModelError(f"{path} of {type(model).__name__} is no list of blocks.")
    return found
