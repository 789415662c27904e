"""Writing a folder so that it is either wholly there or not there at all."""

import errno
import glob
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout
from safetensors import SafetensorError

from shoal.core.errors import UsageError

log = logging.getLogger(__name__)

LOCK = ".lock"
"""Held in a temporary folder while it is written; the system lets go of it if the process dies."""


def check_target(out: Path, source: Path | None, *, overwrite: bool) -> None:
    """Refuse a target folder that must not be written; reads nothing, writes nothing.

    Args:
        out: The folder to write.
        source: The dense model's folder, if it has one.
        overwrite: Whether an existing folder may be replaced.

    Raises:
        UsageError: If the folder exists, or holds, is or lies in the dense model's.
    """
    target = out.expanduser().resolve()
    if source is not None:
        dense = source.resolve()
        if target == dense or dense in target.parents or target in dense.parents:
            raise UsageError(
                f"{out} is, holds or lies in the dense model's folder {source}, which is never "
                "written to. Choose a folder elsewhere."
            )
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file. Choose the name of a folder.")
    if out.is_dir() and not overwrite:
        raise UsageError(f"{out} exists. Choose another folder, or replace it with --overwrite.")
    if out.is_dir() and any(out.iterdir()) and not (out / "config.json").is_file():
        raise UsageError(
            f"{out} exists and is no checkpoint (it holds no config.json), so it is not replaced. "
            "Choose another folder."
        )
    above = next(parent for parent in target.parents if parent.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise UsageError(f"{out} cannot be made: {above} is not a folder one may write in.")


def check_space(out: Path, needed: int) -> None:
    """Refuse to start what does not fit.

    Raises:
        UsageError: If the disk has less free than the planned size.
    """
    above = next(p for p in (out.resolve(), *out.resolve().parents) if p.exists())
    free = shutil.disk_usage(above).free
    if free < needed:
        raise UsageError(
            f"{out} needs {needed:,} bytes, but only {free:,} are free on its disk. "
            "Free some space or choose another disk."
        )


@contextmanager
def staged(out: Path, needed: int) -> Iterator[Path]:
    """A temporary folder beside `out` that takes its place at the end.

    Whatever goes wrong, an interruption included, the temporary folder is removed and an existing
    `out` stays as it was.

    Args:
        out: The folder to publish.
        needed: The planned size in bytes, for the message when the disk fills up.

    Raises:
        UsageError: If the disk is full.
    """
    target = out.expanduser().resolve()
    missing = [parent for parent in target.parents if not parent.exists()]
    temporary = target.with_name(f".{target.name}.partial-{os.getpid()}")
    clear_leftovers(target)
    lock = FileLock(temporary / LOCK)
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        with full_disk_named(out, needed):
            with lock:
                yield temporary
            (temporary / LOCK).unlink(missing_ok=True)
        _publish(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        for parent in missing:
            # Only the empty ones go: after a success they hold the result.
            with suppress(OSError):
                parent.rmdir()


def clear_leftovers(target: Path) -> None:
    """Remove what exports to the same place left behind when their process was killed.

    A folder is left alone while the process that it is named after runs here, or while anyone, on
    another machine perhaps, holds its lock.

    Raises:
        UsageError: If one was killed just while it replaced an existing folder, which is put back.
    """
    if not target.parent.is_dir():
        return
    for kind in ("partial", "old"):
        head = f".{target.name}.{kind}-"
        for folder in target.parent.glob(glob.escape(head) + "*"):
            number = folder.name.removeprefix(head)
            if not number.isdecimal() or _runs(int(number)) or _is_locked(folder):
                continue
            if kind == "old" and not target.exists():
                folder.rename(target)
                raise UsageError(
                    f"an earlier export was killed while it replaced {target}. The old folder has "
                    "been put back. Replace it with --overwrite, or choose another folder."
                )
            log.info("removed %s, which an export left behind when it was killed", folder)
            shutil.rmtree(folder, ignore_errors=True)


def _runs(process: int) -> bool:
    """Whether another process of that number runs on this machine."""
    if process == os.getpid():
        return False
    if Path("/proc/self").exists():
        return Path(f"/proc/{process}").exists()
    try:
        # Signal 0 asks and does nothing, except on Windows, where the lock has to do.
        if os.name == "posix":
            os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return os.name == "posix"


def _is_locked(folder: Path) -> bool:
    if not (folder / LOCK).is_file():
        return False
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except (Timeout, OSError):
        return True
    lock.release()
    return False


def _publish(temporary: Path, target: Path) -> None:
    if not target.exists():
        temporary.rename(target)
        return
    old = target.with_name(f".{target.name}.old-{os.getpid()}")
    target.rename(old)
    try:
        temporary.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old)


@contextmanager
def full_disk_named(out: Path, needed: int) -> Iterator[None]:
    """Turn a full disk into one clear error.

    Raises:
        UsageError: If the disk is full.
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        if full or "No space left" in str(error):
            raise UsageError(
                f"the disk is full: {out} needs {needed:,} bytes. Nothing was written. "
                "Free some space or choose another disk."
            ) from error
        raise
