"""Deciding where the weights of a pruned checkpoint come from, before any is written."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from shoal.core.errors import VerificationError
from shoal.core.layout import Layout
from shoal.models.dense import DenseModel
from shoal.models.load import load_config, quantisation
from shoal.models.skeleton import empty_model
from shoal.surgery.config import prune_config
from shoal.surgery.exceptions import Exceptions
from shoal.surgery.memory import change_of
from shoal.surgery.quantised import Renumbering, copy_settings, module_names
from shoal.surgery.shards import write_shards
from shoal.surgery.stored import Stored, stored_tensors, transformed
from shoal.surgery.structure import check_planned, check_source
from shoal.surgery.tensors import Renamer
from shoal.surgery.tied import gathered, handed_out
from shoal.surgery.transforms import Transforms

log = logging.getLogger(__name__)

_FLOATS = {"F32": "float32", "BF16": "bfloat16", "F16": "float16", "F64": "float64"}


@dataclass(frozen=True)
class Weights:
    """How the weights and the config will be written.

    Attributes:
        route: `file` if tensors are copied from the source's files, else `memory`.
        needed: Bytes of the tensors.
        write: Writes weights and config into a folder.
        tensors: What is written on the file route; None where transformers writes the model.
        spare: Those of them that the model has no place for, by the names it knows them under.
    """

    route: str
    needed: int
    write: Callable[[Path], object]
    tensors: tuple[Stored, ...] | None = None
    spare: tuple[str, ...] = ()


def plan_weights(
    dense: DenseModel, layout: Layout, shallow: PreTrainedModel, limit: int
) -> Weights:
    """Choose the route: the files where the source has any, else the model in memory.

    Args:
        dense: The dense model; on the file route its weights are not looked at.
        layout: What the blocks of the pruned model are made of.
        shallow: The pruned model.
        limit: Largest number of tensor bytes in one file.

    Raises:
        UsageError: If the source's files are incomplete.
        UnsupportedModelError: If the tensors of the blocks cannot be told in the files, or the
            settings of a quantisation cannot be renumbered.
        VerificationError: If what would be written is not the pruned model.
    """
    stored = untied(stored_tensors(dense.source), dense.module)
    if stored and (layout.whole or _told_apart(dense, stored)):
        try:
            return _from_files(dense, layout, shallow, stored, limit)
        except VerificationError as error:
            # Files that name tensors otherwise than the model does, by rules of its own.
            if dense.module.device.type == "meta":
                raise
            log.info("the tensors are written from memory, because from the files %s", error)

    def write_memory(folder: Path) -> None:
        shallow.save_pretrained(folder, max_shard_size=limit)
        # safetensors makes its files readable by their owner alone.
        for file in folder.glob("*.safetensors"):
            file.chmod((folder / "config.json").stat().st_mode)

    return Weights("memory", _tensor_bytes(shallow), write_memory)


def _from_files(
    dense: DenseModel,
    layout: Layout,
    shallow: PreTrainedModel,
    stored: Sequence[Stored],
    limit: int,
) -> Weights:
    own = load_config(dense.source, quantised=True)
    packed = quantisation(own) is not None
    unused = check_source(_without_weights(dense.module), stored, dense.source.id, packed=packed)
    inside = model_renamer(dense, layout)
    spare = tuple(new for new in map(inside, unused) if new is not None)
    names = [t.name for t in stored]
    renamer = file_renamer(dense, layout, names)
    shared = handed_out(stored, dense.module, dense.blocks.stacks)
    kept = pruned_tensors(shared, renamer, Transforms.of(dense.config, layout))
    kept = gathered(kept, shallow, dense.blocks.stacks)
    check_planned(_without_weights(shallow), kept, spare, packed=packed)
    config = _file_config(own, dense, layout, kept)
    renumbering = None
    if packed:
        renumbering = Renumbering(
            _either(renamer, inside),
            module_names(names, (path for path, _ in dense.module.named_modules())),
            tuple(dict.fromkeys((*renamer.lists, *dense.blocks.stacks))),
        )
        config = renumbering.config(config)

    def write_files(folder: Path) -> None:
        write_shards(folder, kept, limit)
        config.save_pretrained(folder)
        if renumbering is not None and dense.source.folder is not None:
            copy_settings(dense.source.folder, folder, renumbering)

    return Weights("file", sum(t.size for t in kept), write_files, tuple(kept), spare)


def _without_weights(model: PreTrainedModel) -> PreTrainedModel:
    return model if model.device.type == "meta" else empty_model(model.config)


def file_renamer(dense: DenseModel, layout: Layout, names: Iterable[str]) -> Renamer:
    """Renames the tensors of the source's files.

    Raises:
        UnsupportedModelError: If the tensors of the blocks cannot be told.
    """
    branches = () if layout.whole else dense.branches
    blocks, exceptions = dense.blocks, Exceptions.of(dense.config)
    return Renamer.of_keys(names, blocks.path, layout, branches, blocks.twins, exceptions)


def model_renamer(dense: DenseModel, layout: Layout) -> Renamer:
    """Renames the tensors and modules of the model itself."""
    branches = () if layout.whole else dense.branches
    blocks, exceptions = dense.blocks, Exceptions.of(dense.config)
    return Renamer(blocks.path, layout, branches, tuple(blocks.twins), exceptions)


def _either(*renamers: Renamer) -> Callable[[str], str | None]:
    """Renames under whichever of several paths a name lies."""

    def rename(name: str) -> str | None:
        for renamer in renamers:
            if renamer.place(name) is not None:
                new = renamer(name)
                # The name of a block itself comes back with nothing after its last dot.
                return None if new is None else new.removesuffix(".")
        return renamers[0](name)

    return rename


def pruned_tensors(
    stored: Iterable[Stored], renamer: Renamer, transforms: Transforms
) -> list[Stored]:
    """What is to be written: the tensors that stay, under their new names, changed where need be.

    Args:
        stored: What the files hold.
        renamer: Says which tensors stay, and under which names.
        transforms: Says which of them change.
    """
    found = {t.name: t for t in stored}
    kept = []
    for name, tensor in found.items():
        new = renamer(name)
        if new is None:
            continue
        change, beside = change_of(name, new, renamer, transforms)
        if renamer.zeroes(new):
            tensor = tensor.as_zeros()
        elif change is not None:
            tensor = transformed(tensor, change.make, [found[other] for other in beside])
        kept.append(tensor.called(new))
    return kept


def untied(stored: Sequence[Stored], module: PreTrainedModel) -> list[Stored]:
    """The tensors without the second names of those that the model ties together.

    Pickled files hold a tied tensor once and name it twice; safetensors would hold it twice.
    """
    tied: dict[str, str] = dict(getattr(module, "all_tied_weights_keys", None) or {})
    places = Counter((t.file, t.offset, t.size) for t in stored if t.file.suffix == ".bin")
    ends = tuple(tied)

    def is_second(tensor: Stored) -> bool:
        shared = places[tensor.file, tensor.offset, tensor.size] > 1 and tensor.copied
        return shared and tensor.name.endswith(ends)

    return [t for t in stored if not is_second(t)] if ends else list(stored)


def _file_config(
    own: PreTrainedConfig, dense: DenseModel, layout: Layout, tensors: list[Stored]
) -> PreTrainedConfig:
    """The pruned config of the files, which loading in another dtype has not touched."""
    config = prune_config(own, layout)
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


def _told_apart(dense: DenseModel, stored: Iterable[Stored]) -> bool:
    """Whether the branches of blocks can be told in the files, where they must be.

    Names of modules are known; a checkpoint may use others, which saving the model goes back to.
    """
    names = {t.name for t in stored}
    heads = tuple(path + "." for path in dense.blocks.stacks)
    module: Any = dense.module
    own = {name for name in module.state_dict() if name.startswith(heads)}
    return own <= names


def _tensor_bytes(module: torch.nn.Module) -> int:
    sizes = {t.data_ptr(): t.numel() * t.element_size() for t in module.state_dict().values()}
    return sum(sizes.values())
