"""Which class of transformers builds a model: a causal LM, or a wrapper that also takes images."""

from typing import Any

from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedConfig,
)


def takes_images(config: PreTrainedConfig) -> bool:
    """Whether a model has a language model inside that only a wrapper with images builds."""
    wrapped = type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
    return wrapped and type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING


def auto_class(config: PreTrainedConfig) -> Any:
    """The auto class that loads a checkpoint with such a config."""
    return AutoModelForImageTextToText if takes_images(config) else AutoModelForCausalLM
