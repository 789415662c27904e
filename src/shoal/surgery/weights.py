"""Deciding where the weights of a pruned checkpoint come from, before any is written."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from shoal.core.layout import Layout
from shoal.models.dense import DenseModel
from shoal.models.load import load_config
from shoal.models.source import Source, weight_files
from shoal.surgery.config import prune_config
from shoal.surgery.shards import Stored, read_header, renamed, write_shards, zeroed
from shoal.surgery.tensors import Renamer

_FLOATS = {"F32": "float32", "BF16": "bfloat16", "F16": "float16", "F64": "float64"}


@dataclass(frozen=True)
class Weights:
    """How the weights and the config will be written.

    Attributes:
        route: `file` if tensors are copied from the source's files, else `memory`.
        needed: Bytes of the tensors.
        write: Writes weights and config into a folder.
    """

    route: str
    needed: int
    write: Callable[[Path], object]


def plan_weights(
    dense: DenseModel, layout: Layout, shallow: PreTrainedModel, limit: int
) -> Weights:
    """Choose the route: the files where the source has safetensors, else the model in memory.

    Args:
        dense: The dense model.
        layout: What the blocks of the pruned model are made of.
        shallow: The pruned model in memory.
        limit: Largest number of tensor bytes in one file.

    Raises:
        UsageError: If the source's files are incomplete.
        UnsupportedModelError: If the tensors of the blocks cannot be told in the files.
    """
    source = dense.source
    if source.folder is not None and source.gguf is None and _told_apart(dense, layout):
        tensors = [t for file in weight_files(source.folder) for t in read_header(file)]
        branches = () if layout.whole else dense.branches
        renamer = Renamer.of_keys((t.name for t in tensors), dense.blocks.path, layout, branches)
        kept = zeroed(renamed(tensors, renamer), renamer.zeroes)
        config = _file_config(source, dense, layout, kept)

        def write_files(folder: Path) -> None:
            write_shards(folder, kept, limit)
            config.save_pretrained(folder)

        return Weights("file", sum(t.size for t in kept), write_files)

    def write_memory(folder: Path) -> None:
        shallow.save_pretrained(folder, max_shard_size=limit)
        # safetensors makes its files readable by their owner alone.
        for file in folder.glob("*.safetensors"):
            file.chmod((folder / "config.json").stat().st_mode)

    return Weights("memory", _tensor_bytes(shallow), write_memory)


def _file_config(
    source: Source, dense: DenseModel, layout: Layout, tensors: list[Stored]
) -> PreTrainedConfig:
    """The pruned config of the files, which loading in another dtype has not touched."""
    config = prune_config(load_config(source), layout)
    if config.dtype is None:
        sizes: Counter[str] = Counter()
        for tensor in tensors:
            if tensor.dtype in _FLOATS:
                sizes[_FLOATS[tensor.dtype]] += tensor.count
        if sizes:
            config.dtype = sizes.most_common(1)[0][0]
    if not config.architectures:
        config.architectures = [type(dense.module).__name__]
    return config


def _told_apart(dense: DenseModel, layout: Layout) -> bool:
    """Whether the branches of blocks can be told in the files, where they must be.

    Names of modules are known; a checkpoint may use others, which saving the model goes back to.
    """
    folder = dense.source.folder
    if layout.whole or folder is None:
        return True
    stored = {t.name for file in weight_files(folder) for t in read_header(file)}
    head = dense.blocks.path + "."
    own = {name for name in dense.module.state_dict() if name.startswith(head)}
    return own <= stored


def _tensor_bytes(module: torch.nn.Module) -> int:
    sizes = {t.data_ptr(): t.numel() * t.element_size() for t in module.state_dict().values()}
    return sum(sizes.values())
