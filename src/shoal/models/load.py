"""Loading a dense model from a hub id, a folder, a GGUF file, or a model object."""

import logging
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils.quantization_config import GgufConfig

from shoal.core.errors import MissingDependencyError, UnsupportedModelError, UsageError
from shoal.models.auto import auto_class
from shoal.models.dense import DenseModel
from shoal.models.device import DTYPES, pick_device, pick_dtype
from shoal.models.discover import check_causal
from shoal.models.pickled import outline
from shoal.models.repair import repaired_config
from shoal.models.source import Source, resolve

log = logging.getLogger(__name__)

QUANTISED_BY = ("quantization_config", "compression_config")
"""Where configs hold the settings of a quantisation."""


def quantisation(config: PreTrainedConfig) -> str | None:
    """What a checkpoint is quantised with, e.g. `gptq`; None where it is not quantised."""
    for name in QUANTISED_BY:
        found = getattr(config, name, None)
        if found is not None:
            plain = found if isinstance(found, dict) else found.to_dict()
            return str(plain.get("quant_method") or "a method without a name")
    return None


def load_config(source: Source, *, quantised: bool = False) -> PreTrainedConfig:
    """Read the config and refuse what is not a causal LM, before any weight is read.

    Args:
        source: Where the model comes from.
        quantised: Allow quantised checkpoints, which are carried over but never run.

    Raises:
        UsageError: If the config cannot be read or is not that of a causal LM.
        UnsupportedModelError: If the checkpoint is quantised, unless that is allowed.
        MissingDependencyError: If a GGUF file needs packages that are not installed.
    """
    try:
        if source.gguf:
            config = AutoConfig.from_pretrained(source.folder, gguf_file=source.gguf)
        else:
            config = repaired_config(source) or AutoConfig.from_pretrained(source.folder)
    except UsageError:
        raise
    except ImportError as error:
        raise _needs_gguf(source) from error
    except (ValueError, OSError, KeyError, StrictDataclassError) as error:
        raise UsageError(f"{source.id}: the config cannot be read: {_first_line(error)}") from error
    check_causal(config)
    if not quantised and source.gguf is None and quantisation(config) is not None:
        raise quantised_error(source.id, config)
    return config


def quantised_error(name: str, config: PreTrainedConfig) -> UnsupportedModelError:
    """The refusal to run a quantised checkpoint, with what to do instead."""
    return UnsupportedModelError(
        f"{name} is quantised ({quantisation(config)}), and quantised blocks are not run here. "
        "Search on the unquantised model, then export that plan from the quantised files: "
        f"shoal export PLAN --model {name} --any-model --out DIR."
    )


def load_dense(
    model: "str | PreTrainedModel | DenseModel | Source",
    *,
    device: str = "auto",
    dtype: str = "auto",
    tokenizer: PreTrainedTokenizerBase | None = None,
    config: PreTrainedConfig | None = None,
    quantised: bool = False,
) -> DenseModel:
    """Load a dense model.

    Args:
        model: A hub id (`org/name@revision`), a folder, a GGUF file, an embedded model's name, a
            resolved source, or a model object, which is used as it is.
        device: `auto`, `cpu`, `cuda`, `cuda:N` or `mps`.
        dtype: `auto` (the checkpoint's; bfloat16 for dequantised weights where that is fast),
            `float32`, `bfloat16` or `float16`.
        tokenizer: Used instead of the checkpoint's own.
        config: The config, when it was read before.
        quantised: Allow a quantised checkpoint, which then runs by the library that it needs and
            as a whole only.

    Returns:
        The model in eval mode, with its blocks found.

    Raises:
        UsageError: If there is no such model, or it is not a causal LM.
        UnsupportedModelError: If its blocks cannot be told, or it is quantised.
        MissingDependencyError: If the library of its files is not installed.
    """
    if isinstance(model, DenseModel):
        return model
    if isinstance(model, PreTrainedModel):
        name = model.config.name_or_path or type(model).__name__
        return DenseModel(model, tokenizer, Source("object", name, None))
    source = model if isinstance(model, Source) else resolve(model)
    config = config or load_config(source, quantised=quantised)
    packed = None if source.gguf else quantisation(config)
    where = pick_device(device)
    own = None if source.gguf else checkpoint_dtype(config)
    chosen = pick_dtype(dtype, where, own)
    arguments: dict[str, Any] = {"use_safetensors": not source.pickled}
    for file in source.weight_files() if source.pickled else ():
        # Refuses whatever is more than tensors; weights are not read for it.
        outline(file)
    if source.gguf:
        # Packed weights are no matrices that blocks, heads and checkpoints could share.
        arguments = {
            "gguf_file": source.gguf,
            "quantization_config": GgufConfig(dequantize=True),
        }
    try:
        module, report = auto_class(config).from_pretrained(
            source.folder, config=config, dtype=chosen, output_loading_info=True, **arguments
        )
    except ImportError as error:
        if source.gguf:
            raise _needs_gguf(source) from error
        if packed is not None:
            raise MissingDependencyError(
                f"{source.id} is quantised ({packed}), and running it needs another package: "
                f"{_first_line(error)}."
            ) from error
        raise
    except (SafetensorError, RuntimeError, ValueError, OSError, KeyError) as error:
        raise UsageError(
            f"the weights of {source.id} cannot be loaded: {_first_line(error)}. The checkpoint is "
            "damaged, or its config belongs to other weights."
        ) from error
    _check_complete(source, report)
    if source.gguf:
        _forget_quantisation(module)
    if packed is None or module.device != where:
        module.to(where)
    if tokenizer is None:
        tokenizer = load_tokenizer(source)
    return DenseModel(module, tokenizer, source)


def load_tokenizer(source: Source) -> PreTrainedTokenizerBase | None:
    """The tokenizer of a checkpoint, or None where it has none."""
    arguments: dict[str, Any] = {"gguf_file": source.gguf} if source.gguf else {}
    config = repaired_config(source, tell=False)
    if config is not None:
        arguments["config"] = config
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            source.folder, **arguments
        )
    except (OSError, ValueError, KeyError, ImportError, TypeError, AttributeError) as error:
        log.info("no tokenizer in %s: %s", source.id, error)
        return None
    return tokenizer


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def _check_complete(source: Source, report: dict[str, Any]) -> None:
    """Refuse weights that leave part of the model at random, and say what was not used."""
    missing = sorted(map(str, report.get("missing_keys") or ()))
    if missing:
        raise UsageError(
            f"{source.id} lacks {len(missing)} of the tensors that its config asks for, "
            f"{missing[0]} first. The checkpoint is incomplete, or its config is another model's."
        )
    unused = sorted(map(str, report.get("unexpected_keys") or ()))
    if unused:
        log.warning(
            "%s holds %d tensors that its config does not ask for, %s first; they are not used",
            source.id,
            len(unused),
            unused[0],
        )


def checkpoint_dtype(config: PreTrainedConfig) -> torch.dtype:
    """The dtype that a checkpoint states for its weights; float32 where it states none."""
    own = getattr(config, "dtype", None)
    if isinstance(own, str):
        own = DTYPES.get(own)
    return own if isinstance(own, torch.dtype) else torch.float32


def _forget_quantisation(module: PreTrainedModel) -> None:
    """Make a dequantised model an ordinary one: its tensors are plain, its config should say so."""
    for owner in (module.config, module):
        for name in ("quantization_config", "hf_quantizer", "quantization_method"):
            if hasattr(owner, name):
                delattr(owner, name)
    if hasattr(module, "is_quantized"):
        module.is_quantized = False


def _needs_gguf(source: Source) -> MissingDependencyError:
    return MissingDependencyError(
        f"reading the GGUF file {source.gguf} needs the packages gguf, accelerate, sentencepiece "
        'and protobuf. Install them with: pip install "shoal[demo]"'
    )
