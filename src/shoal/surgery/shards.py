"""Writing safetensors files: bytes are streamed from file to file, with bounded memory."""

import errno
import json
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import torch

from shoal.core.errors import UsageError, VerificationError
from shoal.models.source import INDEX, SINGLE
from shoal.surgery.stored import Stored, close_files, read

CHUNK = 8 * 2**20
"""Bytes held at once while copying."""

_NO_SHORTCUT = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM})
"""Why a system may decline to copy by itself: other file systems, old kernels, sandboxes."""


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
    try:
        return _write_all(folder, split(tensors, limit))
    finally:
        close_files()


def _write_all(folder: Path, shards: list[list[Stored]]) -> list[str]:
    if len(shards) == 1:
        write_file(folder / SINGLE, shards[0])
        return [SINGLE]
    names = [f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors" for i in range(len(shards))]
    for name, shard in zip(names, shards, strict=True):
        write_file(folder / name, shard)
    index = {
        "metadata": {"total_size": sum(tensor.size for shard in shards for tensor in shard)},
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
            if not (tensor.copied and _copied_by_kernel(tensor, out)):
                for chunk in chunks(tensor):
                    out.write(chunk)


def _copied_by_kernel(tensor: Stored, out: BinaryIO) -> bool:
    """Have the system copy a tensor's bytes, where it can; it may even share them on the disk.

    Raises:
        UsageError: If the file has become shorter than its header says.
    """
    if not hasattr(os, "copy_file_range"):
        return False
    out.flush()
    begin, done = out.tell(), 0
    with tensor.file.open("rb") as stream:
        while done < tensor.size:
            try:
                copied = os.copy_file_range(
                    stream.fileno(), out.fileno(), tensor.size - done, tensor.offset + done
                )
            except OSError as error:
                if error.errno not in _NO_SHORTCUT or done:
                    raise
                return False
            if not copied:
                # Some file systems answer so where they cannot; reading tells whether bytes lack.
                out.seek(begin)
                return False
            done += copied
    out.seek(begin + done)
    return True


def chunks(tensor: Stored) -> Iterator[memoryview]:
    """The bytes of a tensor, a piece at a time; a piece is gone when the next one is asked for.

    Raises:
        UsageError: If the file has become shorter than its header says.
    """
    if tensor.zero:
        nothing = memoryview(bytes(min(CHUNK, tensor.size)))
        for start in range(0, tensor.size, CHUNK):
            yield nothing[: tensor.size - start]
    elif tensor.make is not None:
        # A tensor of no dimensions has no bytes view, so it gets one.
        made = read(tensor).contiguous().reshape(-1).view(torch.uint8)
        if made.numel() != tensor.size:
            raise VerificationError(f"{tensor.name} was made with another size than announced.")
        yield made.numpy().data
    else:
        yield from _pieces(tensor)


def _pieces(tensor: Stored) -> Iterator[memoryview]:
    buffer, left = memoryview(bytearray(min(CHUNK, tensor.size))), tensor.size
    with tensor.file.open("rb", buffering=0) as stream:
        stream.seek(tensor.offset)
        while left:
            got = stream.readinto(buffer[:left])
            if not got:
                raise UsageError(f"{tensor.file} is cut short: {tensor.name} is incomplete.")
            left -= got
            yield buffer[:got]
