"""The dense model without its weights: on the meta device, where a tensor is only its shape."""

import copy

import torch
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.initialization import no_init_weights

from shoal.core.errors import UsageError
from shoal.models.auto import auto_class
from shoal.models.dense import DenseModel
from shoal.models.load import QUANTISED_BY
from shoal.models.source import Source


def empty_model(config: PreTrainedConfig) -> PreTrainedModel:
    """A model of a config on the meta device; takes no memory, whatever its size.

    Quantisation is left out: it replaces modules by those of its own library, and the blocks are
    the same without.

    Raises:
        UsageError: If the config does not make a model.
    """
    plain = copy.deepcopy(config)
    for name in QUANTISED_BY:
        if getattr(plain, name, None) is not None:
            delattr(plain, name)
    auto = auto_class(plain)
    try:
        with torch.device("meta"), no_init_weights():
            model: PreTrainedModel = auto.from_config(plain, trust_remote_code=False)
    except (ValueError, TypeError, RuntimeError, AttributeError, KeyError, ImportError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UsageError(
            f"the config of this {config.model_type} model makes no model: {reason}. "
            "It is damaged, or was written for another release of transformers."
        ) from error
    model.tie_weights()
    model.train(False)
    return model


def skeleton(source: Source, config: PreTrainedConfig) -> DenseModel:
    """The dense model of some files, with its blocks found and no weight read.

    Raises:
        UsageError: If the config does not make a model.
        UnsupportedModelError: If its blocks cannot be told.
    """
    return DenseModel(empty_model(config), None, source)
