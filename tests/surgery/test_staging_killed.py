"""An export that is killed leaves nothing that looks finished, and the next one cleans up."""

import os
import signal
import subprocess
import sys
import time

import pytest

from shoal.core.errors import UsageError
from shoal.core.mask import Mask
from shoal.models.source import resolve
from shoal.surgery.export import export_files
from shoal.surgery.staging import LOCK, clear_leftovers, staged
from shoal.testing.tiny import save_tiny

MASK = Mask.of(6, [1, 3])

SLOW = """
import sys, time
from shoal.core.mask import Mask
from shoal.models.source import resolve
from shoal.surgery import shards
from shoal.surgery.export import export_files
real = shards.chunks
def slow(tensor):
    yield from real(tensor)
    time.sleep(60)
shards._copied_by_kernel = lambda tensor, out: False
shards.chunks = slow
export_files(resolve(sys.argv[1]), Mask.of(6, [1, 3]), sys.argv[2], overwrite=True)
"""

pytestmark = pytest.mark.skipif(os.name != "posix", reason="kills a process")


def killed_export(folder, out):
    """Start an export, kill it while it writes the weights, and return the folder it leaves."""
    child = subprocess.Popen([sys.executable, "-c", SLOW, str(folder), str(out)])
    left = out.with_name(f".{out.name}.partial-{child.pid}")
    try:
        end = time.monotonic() + 300
        while not (left / "model.safetensors").is_file():
            assert child.poll() is None
            assert time.monotonic() < end
            time.sleep(0.05)
        # While it runs, nobody else touches its folder.
        clear_leftovers(out)
        assert left.is_dir()
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    return left


@pytest.mark.parametrize("before", [False, True])
def test_a_killed_export(before, tmp_path):
    folder, out = save_tiny("llama", tmp_path / "dense"), tmp_path / "out"
    source = resolve(str(folder))
    if before:
        export_files(source, Mask.of(6, [0]), out, check="none")
    old = {p.name: p.read_bytes() for p in out.iterdir()} if before else None
    left = killed_export(folder, out)
    assert left.is_dir()
    assert not (left / "config.json").exists()
    if before:
        assert {p.name: p.read_bytes() for p in out.iterdir()} == old
    else:
        assert not out.exists()
    export_files(source, MASK, out, check="none", overwrite=before)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dense", "out"]
    assert not (out / LOCK).exists()


def dead_process():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_what_running_processes_write_is_left_alone(tmp_path):
    alive = tmp_path / f".out.partial-{os.getppid()}"
    other = tmp_path / f".outer.partial-{dead_process()}"
    odd = tmp_path / ".out.partial-x"
    for left in (alive, other, odd):
        left.mkdir()
    with staged(tmp_path / "out", 0) as folder:
        (folder / "a").write_text("a")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        [alive.name, other.name, odd.name, "out"]
    )


def test_a_folder_killed_while_it_was_replaced_is_put_back(tmp_path):
    old = tmp_path / f".out.old-{dead_process()}"
    old.mkdir()
    (old / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="put back"), staged(tmp_path / "out", 0):
        pass
    assert (tmp_path / "out/config.json").is_file()
    old.mkdir()
    with staged(tmp_path / "out", 0) as folder:
        (folder / "new").write_text("")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out/new").is_file()
