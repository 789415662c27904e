"""Tensors as they lie in files: where their bytes are, and what is to become of them.

A safetensors file is an 8-byte little-endian header length, a JSON header padded with spaces to a
multiple of 8, and the tensors' bytes. Nothing is decoded, so every dtype passes unchanged. A tensor
that does not stay as it is carries a function that makes it when it is written.
"""

import json
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from shoal.core.errors import UnsupportedModelError, UsageError
from shoal.models.pickled import contents, offsets, outline
from shoal.models.source import Source, weight_files

Transform: TypeAlias = Callable[..., Tensor]
"""Makes the tensor to be written of the one that is stored; also on the meta device."""

DTYPES: dict[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
"""Names of dtypes in the format. Others pass through as bytes."""

_NAMES = {dtype: name for name, dtype in DTYPES.items()}

LARGEST_HEADER = 100 * 10**6
"""Bytes; safetensors itself refuses larger ones."""


@dataclass(frozen=True)
class Stored:
    """One tensor of a checkpoint's files.

    Attributes:
        name: Its name.
        dtype: Its dtype as the format writes it, e.g. `BF16`.
        shape: Its shape.
        file: The file.
        offset: Where its bytes begin in the file.
        size: How many bytes it has.
        zero: Whether zeros are written in the place of its bytes.
        make: Gives the tensor to write, where that is not the bytes in the file.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    offset: int
    size: int
    zero: bool = False
    make: Callable[[], Tensor] | None = field(default=None, compare=False)

    @property
    def count(self) -> int:
        """How many numbers it holds."""
        return prod(self.shape)

    @property
    def copied(self) -> bool:
        """Whether its bytes are those in the file."""
        return not self.zero and self.make is None

    def called(self, name: str) -> "Stored":
        """The same tensor under another name."""
        return self if name == self.name else replace(self, name=name)

    def as_zeros(self) -> "Stored":
        """Zeros in its place."""
        return replace(self, zero=True)


def stored_tensors(source: Source) -> list[Stored]:
    """All tensors of a folder's weight files, file by file.

    Raises:
        UsageError: If files are missing, damaged, or hold anything besides tensors.
    """
    if source.folder is None or source.gguf:
        return []
    found = []
    for file in weight_files(source.folder):
        found += read_pickled(file) if file.suffix == ".bin" else read_header(file)
    name, times = Counter(t.name for t in found).most_common(1)[0] if found else ("", 0)
    if times > 1:
        raise UsageError(
            f"{source.id} holds {name} {times} times, so it is not clear which one counts. "
            "Fetch the checkpoint again."
        )
    return found


def read_header(file: Path) -> list[Stored]:
    """The tensors of a safetensors file, in the order of their bytes.

    Raises:
        UsageError: If the file is cut short or no safetensors file.
    """
    total = file.stat().st_size
    with file.open("rb") as stream:
        start = stream.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else total
        if 8 + length > total:
            raise UsageError(f"{file} is no safetensors file, or is cut short.")
        if length > LARGEST_HEADER:
            raise UsageError(f"{file} is no safetensors file: its header is {length:,} bytes long.")
        try:
            header: dict[str, Any] = json.loads(stream.read(length))
            header.pop("__metadata__", None)
            found = [_entry(file, 8 + length, *item) for item in header.items()]
        except ValueError as error:
            raise UsageError(f"{file} is no safetensors file: its header is no JSON.") from error
        except (TypeError, KeyError, AttributeError) as error:
            raise UsageError(
                f"{file} is no safetensors file: its header is no table of tensors."
            ) from error
    wrong = [t for t in found if t.offset < 8 + length or t.size != _size(t)]
    if wrong:
        raise UsageError(f"{file} is damaged: {wrong[0].name} begins or ends in the wrong place.")
    if any(tensor.offset + tensor.size > total for tensor in found):
        raise UsageError(f"{file} is cut short: its header names bytes past its end.")
    return sorted(found, key=lambda tensor: tensor.offset)


def _entry(file: Path, start: int, name: str, entry: dict[str, Any]) -> Stored:
    first, last = entry["data_offsets"]
    shape = tuple(map(int, entry["shape"]))
    return Stored(name, entry["dtype"], shape, file, start + first, last - first)


def _size(tensor: Stored) -> int:
    """How many bytes a tensor should have; those that it has where the dtype is not known."""
    dtype = DTYPES.get(tensor.dtype)
    return max(tensor.size, 0) if dtype is None else tensor.count * dtype.itemsize


def read_pickled(file: Path) -> list[Stored]:
    """The tensors of a pickled file; their bytes are copied from it wherever they lie in a row.

    Raises:
        UsageError: If the file is damaged, or holds anything besides tensors.
    """
    tensors = outline(file)
    places = offsets(file, tensors)
    found = []
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        make = None if name in places else partial(_unpickled, file, name)
        place, shape = places.get(name, 0), tuple(tensor.shape)
        found.append(Stored(name, _name_of(tensor, name), shape, file, place, size, make=make))
    return sorted(found, key=lambda tensor: tensor.offset)


_opened = lru_cache(maxsize=1)(contents)
"""One file at a time."""


def close_files() -> None:
    """Let go of the pickled file that was read last."""
    _opened.cache_clear()


def _unpickled(file: Path, name: str) -> Tensor:
    return _opened(file)[name].contiguous()


def _name_of(tensor: Tensor, name: str) -> str:
    if tensor.dtype not in _NAMES:
        raise UnsupportedModelError(f"{name} is of {tensor.dtype}, which safetensors cannot hold.")
    return _NAMES[tensor.dtype]


def _dtype_of(tensor: Stored) -> torch.dtype:
    if tensor.dtype not in DTYPES:
        raise UnsupportedModelError(
            f"{tensor.name} is of dtype {tensor.dtype}, which can be carried over but not changed."
        )
    return DTYPES[tensor.dtype]


def transformed(tensor: Stored, change: Transform, beside: Sequence[Stored] = ()) -> Stored:
    """The tensor to be read, changed and written by itself, in the place of its bytes.

    The change is tried on the meta device, because a header states shapes before any bytes.

    Args:
        tensor: What is stored.
        change: Makes the new tensor of it.
        beside: Further tensors that `change` takes after it.
    """
    parts = (tensor, *beside)
    after = change(*(torch.empty(t.shape, dtype=_dtype_of(t), device="meta") for t in parts))
    return replace(
        tensor,
        dtype=_name_of(after, tensor.name),
        shape=tuple(after.shape),
        size=after.numel() * after.element_size(),
        make=lambda: change(*map(read, parts)),
    )


def read(tensor: Stored) -> Tensor:
    """One tensor in memory, as it is to be written.

    Raises:
        UsageError: If the file has become shorter than its header says.
    """
    if tensor.make is not None:
        return tensor.make()
    dtype = _dtype_of(tensor)
    if tensor.zero or not tensor.count:
        return torch.zeros(tensor.shape, dtype=dtype)
    data = bytearray(tensor.size)
    with tensor.file.open("rb") as stream:
        stream.seek(tensor.offset)
        if stream.readinto(data) < tensor.size:
            raise UsageError(f"{tensor.file} is cut short: {tensor.name} is incomplete.")
    return torch.frombuffer(data, dtype=torch.uint8).view(dtype).view(tensor.shape)
