"""Writing a plan for other tools: a file that they read, or a checkpoint in their form."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedConfig

from shoal.core.errors import UnsupportedModelError, UsageError
from shoal.core.mask import Mask
from shoal.models.dense import DenseModel
from shoal.models.source import SINGLE, Source
from shoal.surgery.fields import per_layer_fields
from shoal.surgery.interop import FORMATS, Dense
from shoal.surgery.interop.nemotron_check import check_nemotron
from shoal.surgery.interop.nemotron_nas import (
    CONFIGURATION_FILE,
    configuration_code,
    keep_tensor,
    nemotron_config,
)
from shoal.surgery.shards import write_shards
from shoal.surgery.sidecars import copy_sidecars
from shoal.surgery.staging import check_space, check_target, staged
from shoal.surgery.stored import stored_tensors

NEMOTRON = "nemotron-nas"


@dataclass(frozen=True)
class Foreign:
    """What was written for another tool.

    Attributes:
        path: The file or folder.
        format: Which tool's form it has.
        note: What a user must know of it.
    """

    path: Path
    format: str
    note: str


def is_foreign(format: str) -> bool:
    """Whether a format is another tool's."""
    return format in FORMATS


def write_file(
    format: str,
    mask: Mask,
    out: Path,
    *,
    model: str,
    config: PreTrainedConfig,
    overwrite: bool = False,
) -> Foreign:
    """Write the text file of another tool; no weights.

    Args:
        format: `mergekit` or `evopress`.
        mask: What is removed.
        out: The file, or a folder for it.
        model: How the tool will name the dense model.
        config: The dense model's config.
        overwrite: Replace an existing file.

    Raises:
        UsageError: If the file exists, or its form cannot say this mask.
    """
    own = FORMATS[format]
    path = out if out.suffix in (".yaml", ".yml", ".txt") else out / own.file_name
    if path.exists() and not overwrite:
        raise UsageError(f"{path} exists. Choose another name, or replace it with --overwrite.")
    dtype = str(getattr(config, "dtype", None) or "bfloat16").removeprefix("torch.")
    text = own.write(mask, Dense(model, dtype, config, per_layer_fields(config)))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return Foreign(path, format, own.summary)


def write_nemotron(
    mask: Mask,
    out: Path,
    *,
    config: PreTrainedConfig,
    source: Source,
    dense: DenseModel | None = None,
    overwrite: bool = False,
    max_shard_bytes: int = 5 * 10**9,
) -> Foreign:
    """Write a checkpoint whose config says which sub-layers are missing, as vLLM's DeciLM reads it.

    Args:
        mask: What is removed.
        out: The folder to write.
        config: The dense model's config.
        source: Its files; tensors are copied from them where they are safetensors.
        dense: The loaded model, where they are not.
        overwrite: Replace an existing folder.
        max_shard_bytes: Largest number of tensor bytes in one weight file.

    Raises:
        UsageError: If the folder must not be written, or vLLM would fail with this mask.
        UnsupportedModelError: If the model is no plain Llama.
        VerificationError: If what was written is not what its config asks for.
    """
    check_target(out, source.folder, overwrite=overwrite)
    described = nemotron_config(config, mask)
    stored = [] if source.folder is None or source.gguf else stored_tensors(source)
    kept = [t for t in stored if keep_tensor(t.name, mask)]
    if not stored and dense is None:
        raise UnsupportedModelError("a model without files has to be loaded to be written.")
    needed = sum(t.size for t in kept)
    check_space(out, needed)
    with staged(out, needed) as folder:
        if stored:
            write_shards(folder, kept, max_shard_bytes)
        elif dense is not None:
            save_file(_tensors(dense, mask), folder / SINGLE, metadata={"format": "pt"})
        _write_json(folder / "config.json", described)
        (folder / CONFIGURATION_FILE).write_text(configuration_code(), encoding="utf-8")
        copy_sidecars(source, None if dense is None else dense.tokenizer, folder)
        check_nemotron(folder)
    return Foreign(
        out,
        NEMOTRON,
        "for vLLM with --trust-remote-code (the config class lies in the folder); its names and "
        "shapes were checked, it was not run",
    )


def _tensors(dense: DenseModel, mask: Mask) -> dict[str, Tensor]:
    """The tensors that stay, without the second names of tied ones."""
    tied = dict(getattr(dense.module, "all_tied_weights_keys", None) or {})
    state = dense.module.state_dict()
    return {
        name: tensor.contiguous()
        for name, tensor in state.items()
        if keep_tensor(name, mask) and name not in tied
    }


def _write_json(path: Path, value: Mapping[str, object]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
