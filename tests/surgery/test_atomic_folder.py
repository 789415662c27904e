"""A result folder is wholly there or not there, whatever fails, interrupts or fills up."""

import errno
import json
from collections import namedtuple

import pytest
from safetensors import SafetensorError

from shoal.core.errors import UsageError, VerificationError
from shoal.core.mask import Mask
from shoal.models.load import load_dense
from shoal.surgery import export as exporting
from shoal.surgery import shards, staging, writing
from shoal.surgery.export import export
from shoal.surgery.staging import check_target
from shoal.testing.tiny import save_tiny

MASK = Mask.of(6, [1, 3])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny("llama", tmp_path_factory.mktemp("source") / "dense")


@pytest.fixture(scope="module")
def dense(folder):
    return load_dense(str(folder))


def failing(error):
    def fail(*args, **kwargs):
        raise error

    return fail


def after_first(error, real):
    """A generator function that yields one real piece, then fails."""

    def pieces(*args):
        yield next(iter(real(*args)))
        raise error

    return pieces


@pytest.mark.parametrize(
    "error",
    [KeyboardInterrupt(), RuntimeError("boom"), VerificationError("differs"), OSError(5, "io")],
)
def test_any_failure_leaves_nothing(error, dense, tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "check_reload", failing(error))
    with pytest.raises(type(error)):
        export(dense, MASK, tmp_path / "deep/er/out")
    assert not any(tmp_path.iterdir())


def test_failure_in_the_middle_of_a_tensor_leaves_nothing(dense, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "_copied_by_kernel", lambda tensor, out: False)
    monkeypatch.setattr(shards, "chunks", after_first(KeyboardInterrupt(), shards.chunks))
    with pytest.raises(KeyboardInterrupt):
        export(dense, MASK, tmp_path / "out")
    assert not any(tmp_path.iterdir())


def test_full_disk_names_the_size_and_leaves_nothing(dense, tmp_path, monkeypatch):
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(shards, "_copied_by_kernel", lambda tensor, out: False)
    monkeypatch.setattr(shards, "chunks", after_first(full, shards.chunks))
    with pytest.raises(UsageError, match=r"the disk is full: .* needs [\d,]{6,} bytes"):
        export(dense, MASK, tmp_path / "out")
    assert not any(tmp_path.iterdir())


def test_full_disk_in_the_memory_route(tiny_dense, tmp_path, monkeypatch):
    error = SafetensorError("I/O error: No space left on device (os error 28)")
    monkeypatch.setattr("transformers.modeling_utils.safe_save_file", failing(error))
    with pytest.raises(UsageError, match="the disk is full"):
        export(tiny_dense("llama"), MASK, tmp_path / "out")
    assert not any(tmp_path.iterdir())


def test_too_little_space_is_refused_before_writing(dense, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")(10, 9, 1)
    monkeypatch.setattr(staging.shutil, "disk_usage", lambda path: usage)
    monkeypatch.setattr(writing, "staged", failing(AssertionError("must not start")))
    with pytest.raises(UsageError, match="only 1 are free"):
        export(dense, MASK, tmp_path / "new/out")
    assert not any(tmp_path.iterdir())


def test_existing_folder_needs_overwrite_and_is_replaced_whole(dense, tmp_path):
    out = tmp_path / "out"
    export(dense, MASK, out, check=False)
    (out / "stale.txt").write_text("old")
    with pytest.raises(UsageError, match="exists"):
        export(dense, MASK, out, check=False)
    export(dense, Mask.of(6, [0]), out, overwrite=True)
    assert json.loads((out / "config.json").read_text())["num_hidden_layers"] == 5
    assert not (out / "stale.txt").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_old_folder_survives_a_failed_overwrite(dense, tmp_path, monkeypatch):
    out = tmp_path / "out"
    export(dense, MASK, out, check=False)
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    monkeypatch.setattr(exporting, "check_reload", failing(VerificationError("differs")))
    with pytest.raises(VerificationError):
        export(dense, Mask.of(6, [0]), out, overwrite=True)
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_overwrite_never_replaces_what_is_no_checkpoint(dense, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home/thesis.txt").write_text("precious")
    with pytest.raises(UsageError, match="no checkpoint"):
        export(dense, MASK, tmp_path / "home", overwrite=True)
    assert (tmp_path / "home/thesis.txt").read_text() == "precious"


@pytest.mark.parametrize("where", [".", "inside/deep", ".."])
def test_dense_folder_is_never_written(where, dense, folder):
    before = sorted(p.name for p in folder.iterdir())
    with pytest.raises(UsageError, match="never written to"):
        export(dense, MASK, folder / where, overwrite=True)
    assert sorted(p.name for p in folder.iterdir()) == before


def test_target_that_is_a_file_or_below_one_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is a file"):
        check_target(tmp_path / "file", None, overwrite=True)
    with pytest.raises(UsageError, match="cannot be made"):
        check_target(tmp_path / "file/out", None, overwrite=False)


def test_leftover_of_a_killed_run_with_the_same_process_number_is_no_obstacle(dense, tmp_path):
    left = tmp_path / f".out.partial-{staging.os.getpid()}"
    left.mkdir()
    (left / "half.safetensors").write_text("junk")
    export(dense, MASK, tmp_path / "out", check=False)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert not (tmp_path / "out/half.safetensors").exists()
