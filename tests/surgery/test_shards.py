"""Streaming safetensors: bytes stay equal, shards stay small, memory stays bounded."""

import errno
import json
import tracemalloc

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from shoal.core.errors import UsageError, VerificationError
from shoal.models.source import weight_files
from shoal.surgery import shards
from shoal.surgery.shards import chunks, split, write_file, write_shards
from shoal.surgery.stored import Stored, read, read_header, transformed

TENSORS = {
    "a": torch.arange(7, dtype=torch.uint8),
    "b": torch.randn(3, 5),
    "c": torch.randn(4, 4, dtype=torch.bfloat16),
    "d": torch.tensor(2.5, dtype=torch.float64),
    "e": torch.zeros(0, 3),
    "f": torch.randn(5, dtype=torch.float16),
    "g": torch.randn(2, 2).to(torch.float8_e4m3fn),
}


@pytest.fixture
def stored(tmp_path):
    save_file(TENSORS, tmp_path / "in.safetensors")
    return read_header(tmp_path / "in.safetensors")


def same_bits(left, right):
    return (
        left.dtype == right.dtype
        and left.shape == right.shape
        and left.reshape(-1).view(torch.uint8).equal(right.reshape(-1).view(torch.uint8))
    )


def test_every_dtype_survives_bit_for_bit(stored, tmp_path):
    write_file(tmp_path / "out.safetensors", stored)
    found = load_file(tmp_path / "out.safetensors")
    assert found.keys() == TENSORS.keys()
    assert all(same_bits(found[name], TENSORS[name]) for name in TENSORS)
    with safe_open(tmp_path / "out.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_tensors_are_aligned_to_their_dtype(stored, tmp_path):
    write_file(tmp_path / "out.safetensors", stored)
    widths = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "U8": 1, "F8_E4M3": 1}
    for tensor in read_header(tmp_path / "out.safetensors"):
        assert not tensor.size or tensor.offset % widths[tensor.dtype] == 0


def test_index_is_right(stored, tmp_path):
    names = write_shards(tmp_path, stored, 40)
    assert len(names) > 2
    assert names[0] == f"model-00001-of-{len(names):05d}.safetensors"
    index = json.loads((tmp_path / shards.INDEX).read_text())
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in TENSORS.values())
    assert index["weight_map"].keys() == TENSORS.keys()
    for name, file in index["weight_map"].items():
        assert same_bits(load_file(tmp_path / file)[name], TENSORS[name])
    assert weight_files(tmp_path) == [tmp_path / name for name in names]


def test_one_shard_needs_no_index(stored, tmp_path):
    folder = tmp_path / "one"
    folder.mkdir()
    assert write_shards(folder, stored, 10**6) == ["model.safetensors"]
    assert [p.name for p in folder.iterdir()] == ["model.safetensors"]


def by_name(tensors, name):
    return next(t for t in tensors if t.name == name)


def test_a_tensor_may_be_renamed_zeroed_or_changed(stored, tmp_path):
    b, c, f = (by_name(stored, name) for name in "bcf")
    twice = transformed(b, lambda t: (2 * t)[:2])
    joined = transformed(b, lambda t, other: torch.cat([t, other]), [b])
    written = [twice.called("x"), c.as_zeros(), f.called("y"), joined.called("z")]
    assert twice.shape == (2, 5)
    write_file(tmp_path / "out.safetensors", written)
    found = load_file(tmp_path / "out.safetensors")
    assert torch.equal(found["x"], 2 * TENSORS["b"][:2])
    assert torch.equal(found["c"], torch.zeros_like(TENSORS["c"]))
    assert torch.equal(found["y"], TENSORS["f"])
    assert torch.equal(found["z"], torch.cat([TENSORS["b"], TENSORS["b"]]))
    assert torch.equal(read(b), TENSORS["b"])


def test_a_change_that_lies_about_its_shape_is_caught(stored, tmp_path):
    lying = transformed(by_name(stored, "b"), lambda t: t if t.is_meta else t[:1])
    with pytest.raises(VerificationError, match="another size"):
        write_file(tmp_path / "out.safetensors", [lying])


@pytest.mark.parametrize("answer", [OSError(errno.EXDEV, "other disk"), 0])
def test_where_the_system_does_not_copy_bytes_are_read(stored, tmp_path, monkeypatch, answer):
    def refuse(*args):
        if answer:
            raise answer
        return 0

    monkeypatch.setattr(shards.os, "copy_file_range", refuse, raising=False)
    write_file(tmp_path / "out.safetensors", stored)
    found = load_file(tmp_path / "out.safetensors")
    assert all(same_bits(found[name], TENSORS[name]) for name in TENSORS)


def test_an_error_while_the_system_copies_is_not_hidden(stored, tmp_path, monkeypatch):
    def fail(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shards.os, "copy_file_range", fail, raising=False)
    with pytest.raises(OSError, match="No space"):
        write_file(tmp_path / "out.safetensors", stored)


@given(st.lists(st.integers(0, 50)), st.integers(1, 60))
def test_shards_are_no_larger_than_asked(sizes, limit):
    tensors = [Stored(str(i), "U8", (n,), None, 0, n) for i, n in enumerate(sizes)]
    dealt = split(tensors, limit)
    assert [t for shard in dealt for t in shard] == tensors
    assert all(len(s) == 1 or sum(t.size for t in s) <= limit for s in dealt)
    assert all(dealt) or dealt == [[]]


def test_memory_stays_far_below_the_size_of_a_tensor(tmp_path, monkeypatch):
    save_file({f"t{i}": torch.ones(2**20) for i in range(4)}, tmp_path / "in.safetensors")
    tensors = read_header(tmp_path / "in.safetensors")
    monkeypatch.setattr(shards, "CHUNK", 2**16)
    monkeypatch.setattr(shards, "_copied_by_kernel", lambda tensor, out: False)
    tracemalloc.start()
    try:
        write_file(tmp_path / "out.safetensors", tensors)
        peak = tracemalloc.get_traced_memory()[1]
        assert b"".join(map(bytes, chunks(tensors[0]))) == b"\x00\x00\x80\x3f" * 2**20
        whole = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**20 < 4 * 2**20 < whole


@pytest.mark.parametrize("keep", [4, 40, -3])
def test_cut_file_is_refused(tmp_path, keep):
    save_file(TENSORS, tmp_path / "in.safetensors")
    data = (tmp_path / "in.safetensors").read_bytes()
    (tmp_path / "in.safetensors").write_bytes(data[:keep])
    with pytest.raises(UsageError, match="cut short"):
        read_header(tmp_path / "in.safetensors")


def test_file_cut_while_copying_is_refused(stored, tmp_path):
    (tmp_path / "in.safetensors").write_bytes(b"")
    with pytest.raises(UsageError, match="incomplete"):
        write_file(tmp_path / "out.safetensors", stored)


@pytest.mark.parametrize(
    "header",
    [
        b"[1]",
        b'{"a": 1}',
        b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}',
    ],
)
def test_headers_that_make_no_sense_are_refused(tmp_path, header):
    file = tmp_path / "in.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(UsageError, match=r"no safetensors file|damaged"):
        read_header(file)


def test_missing_shard_is_named(tmp_path):
    (tmp_path / shards.INDEX).write_text(json.dumps({"weight_map": {"a": "gone.safetensors"}}))
    with pytest.raises(UsageError, match=r"gone\.safetensors"):
        weight_files(tmp_path)
    with pytest.raises(UsageError, match="neither"):
        weight_files(tmp_path / "nowhere")
