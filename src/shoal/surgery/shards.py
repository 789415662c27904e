"""Copying tensors between safetensors files as raw bytes, with bounded memory.

A safetensors file is an 8-byte little-endian header length, a JSON header padded with spaces to a
multiple of 8, and the tensors' bytes. Nothing is decoded, so every dtype passes unchanged.
"""

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from shoal.core.errors import UsageError
from shoal.models.source import INDEX, SINGLE

CHUNK = 8 * 2**20
"""Bytes held at once while copying."""


@dataclass(frozen=True)
class Stored:
    """One tensor in a safetensors file.

    Attributes:
        name: Its name.
        dtype: Its dtype as the format writes it, e.g. `BF16`.
        shape: Its shape.
        file: The file.
        offset: Where its bytes begin in the file.
        size: How many bytes it has.
        zero: Whether zeros are written in the place of its bytes.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    offset: int
    size: int
    zero: bool = False

    @property
    def count(self) -> int:
        """How many numbers it holds."""
        return prod(self.shape)


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
        try:
            header: dict[str, Any] = json.loads(stream.read(length))
        except ValueError as error:
            raise UsageError(f"{file} is no safetensors file: its header is no JSON.") from error
    header.pop("__metadata__", None)
    found = [
        Stored(
            name,
            entry["dtype"],
            tuple(entry["shape"]),
            file,
            8 + length + entry["data_offsets"][0],
            entry["data_offsets"][1] - entry["data_offsets"][0],
        )
        for name, entry in header.items()
    ]
    if any(tensor.offset + tensor.size > total for tensor in found):
        raise UsageError(f"{file} is cut short: its header names bytes past its end.")
    return sorted(found, key=lambda tensor: tensor.offset)


def renamed(tensors: Iterable[Stored], rename: Callable[[str], str | None]) -> list[Stored]:
    """The tensors that stay, under their new names."""
    pairs = ((tensor, rename(tensor.name)) for tensor in tensors)
    return [replace(tensor, name=name) for tensor, name in pairs if name is not None]


def zeroed(tensors: Iterable[Stored], zeroes: Callable[[str], bool]) -> list[Stored]:
    """The same tensors, some of them to be written as zeros."""
    return [replace(tensor, zero=zeroes(tensor.name)) for tensor in tensors]


def split(tensors: Sequence[Stored], limit: int) -> list[list[Stored]]:
    """Deal tensors to shards, in order, none above `limit` bytes unless one tensor alone is."""
    shards: list[list[Stored]] = [[]]
    used = 0
    for tensor in tensors:
        if shards[-1] and used + tensor.size > limit:
            shards.append([])
            used = 0
        shards[-1].append(tensor)
        used += tensor.size
    return shards


def write_shards(folder: Path, tensors: Sequence[Stored], limit: int) -> list[str]:
    """Write tensors to `model.safetensors`, or to several files with an index.

    Args:
        folder: Where to write.
        tensors: What to write, under the names to write it.
        limit: Largest number of tensor bytes in one file.

    Returns:
        The names of the weight files.
    """
    shards = split(tensors, limit)
    if len(shards) == 1:
        write_file(folder / SINGLE, shards[0])
        return [SINGLE]
    names = [f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors" for i in range(len(shards))]
    for name, shard in zip(names, shards, strict=True):
        write_file(folder / name, shard)
    index = {
        "metadata": {"total_size": sum(tensor.size for tensor in tensors)},
        "weight_map": {
            tensor.name: name for name, shard in zip(names, shards, strict=True) for tensor in shard
        },
    }
    (folder / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
    return names


def write_file(path: Path, tensors: Sequence[Stored]) -> None:
    """Write one safetensors file, streaming the bytes of every tensor from its own file."""
    # Wide dtypes first, as safetensors itself orders them, so that every tensor stays aligned.
    ordered = sorted(tensors, key=lambda tensor: -(tensor.size // max(tensor.count, 1)))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position = 0
    for tensor in ordered:
        header[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [position, position + tensor.size],
        }
        position += tensor.size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for tensor in ordered:
            for chunk in chunks(tensor):
                out.write(chunk)


def chunks(tensor: Stored) -> Iterator[bytes]:
    """The bytes of a tensor, a piece at a time.

    Raises:
        UsageError: If the file has become shorter than its header says.
    """
    if tensor.zero:
        for start in range(0, tensor.size, CHUNK):
            yield bytes(min(CHUNK, tensor.size - start))
        return
    with tensor.file.open("rb") as stream:
        stream.seek(tensor.offset)
        yield from _pieces(stream, tensor)


def _pieces(stream: BinaryIO, tensor: Stored) -> Iterator[bytes]:
    left = tensor.size
    while left:
        piece = stream.read(min(CHUNK, left))
        if not piece:
            raise UsageError(f"{tensor.file} is cut short: {tensor.name} is incomplete.")
        left -= len(piece)
        yield piece
