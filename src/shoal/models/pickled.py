"""Old pickled checkpoints (`pytorch_model.bin`), read without running anything that they hold.

torch's restricted unpickler builds tensors and plain containers and refuses everything else, so a
file that asks for a function to be called is turned down before the call. With `meta` as the place
of the tensors no weights are read: a file of any size gives up its names and shapes at once.
"""

import pickle
import warnings
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZIP_STORED, BadZipFile, ZipFile, is_zipfile

import torch
from torch import Tensor

from shoal.core.errors import UsageError


def outline(file: Path) -> dict[str, Tensor]:
    """The tensors of a pickled file, without their numbers: all on the meta device.

    Raises:
        UsageError: If the file is damaged, or holds anything besides tensors.
    """
    return _read(file, "meta")


def contents(file: Path) -> dict[str, Tensor]:
    """The tensors of a pickled file; mapped rather than read where its format allows that.

    Raises:
        UsageError: If the file is damaged, or holds anything besides tensors.
    """
    return _read(file, "cpu")


def offsets(file: Path, tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Where the numbers of some tensors lie in a pickled file, as plain bytes in a row.

    Args:
        file: The file.
        tensors: Its outline.

    Returns:
        Name -> offset; without those that are not stored that way.
    """
    if not _is_plain(file):
        return {}
    found = {}
    for name, tensor in tensors.items():
        start = getattr(tensor.untyped_storage(), "_checkpoint_offset", None)
        if start is not None and tensor.is_contiguous():
            found[name] = int(start) + int(tensor.storage_offset()) * tensor.element_size()
    return found


def _is_plain(file: Path) -> bool:
    """Whether the file is an archive of uncompressed little-endian records."""
    try:
        with ZipFile(file) as archive:
            records = archive.infolist()
            orders = [r for r in records if r.filename.endswith("/byteorder")]
            little = all(archive.read(r) == b"little" for r in orders)
    except BadZipFile:
        return False
    return little and all(r.compress_type == ZIP_STORED for r in records)


def _read(file: Path, place: str) -> dict[str, Tensor]:
    mapped = place != "meta" and is_zipfile(file)
    try:
        with warnings.catch_warnings():
            # Advice to whoever wrote the file.
            warnings.simplefilter("ignore")
            found = torch.load(file, map_location=place, weights_only=True, mmap=mapped or None)
    except pickle.UnpicklingError as error:
        raise UsageError(
            f"{file} holds something besides tensors, which could run code when it is read: "
            f"{_reason(error)}. Nothing of it was run. Use a checkpoint in safetensors."
        ) from error
    except (RuntimeError, ValueError, EOFError, OSError, KeyError, AssertionError) as error:
        raise UsageError(
            f"{file} is no pickled checkpoint of torch, or is damaged: {_reason(error)}. "
            "Fetch it again."
        ) from error
    if not isinstance(found, Mapping):
        raise UsageError(
            f"{file} holds a {type(found).__name__}, not a table of named tensors. Save the "
            "model's state_dict, best as safetensors."
        )
    other = [name for name, value in found.items() if not _is_weight(name, value)]
    if other:
        raise UsageError(
            f'{file} holds "{other[0]}", a {type(found[other[0]]).__name__}, which is no ordinary '
            "tensor. Save the model's state_dict alone, best as safetensors."
        )
    return {name: value.detach() for name, value in found.items()}


def _is_weight(name: object, value: object) -> bool:
    ordinary = isinstance(value, Tensor) and value.layout is torch.strided
    return isinstance(name, str) and ordinary and not value.is_quantized  # type: ignore[attr-defined]


def _reason(error: Exception) -> str:
    """What torch says was refused, without its advice to trust the file."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if "GLOBAL" in line or "Unsupported" in line]
    first = (told or lines or [type(error).__name__])[0]
    return first.split(" was not an allowed")[0].split(". ")[0].rstrip(".")
