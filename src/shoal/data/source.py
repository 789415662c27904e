"""Where data come from: a user's file, a local folder of tasks, the embedded set, the hub."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from shoal.core.errors import UsageError, closest
from shoal.data.files import SUFFIXES, LocatedRows, read_rows, suffix_of
from shoal.data.folder import find
from shoal.data.guard import Purpose, candidates, check_purpose, warn_if_test
from shoal.data.hub import read_hub
from shoal.data.tasks import TASKS, Task

EMBEDDED = "embedded"
"""The data folder that comes with the package: small parts of wikitext2, arc_easy
and gsm8k."""


@dataclass(frozen=True)
class Request:
    """What a caller asked for; the arguments of the public loaders.

    Attributes:
        name: Task name or path.
        split: Split, or None for the default of the purpose.
        data_dir: Local folder of tasks, "embedded", or None for the hub.
        limit: How many items or documents, or None for all.
        purpose: "calibration" or "report".
        allow_test: Whether calibration on a test split is allowed.
    """

    name: str | os.PathLike[str]
    split: str | None
    data_dir: str | os.PathLike[str] | None
    limit: int | None
    purpose: Purpose
    allow_test: bool

    def __post_init__(self) -> None:
        check_purpose(self.purpose)
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"the limit is {self.limit}; it must be at least 1, or None for all.")


@dataclass(frozen=True)
class Source:
    """Rows that are ready to be read.

    Attributes:
        name: Task name or file name.
        split: The split that was chosen, or "file".
        origin: Where the rows come from, for people.
        rows: The rows with their places.
        task: The task whose schema the rows have; None for a user's own file.
    """

    name: str
    split: str
    origin: str
    rows: LocatedRows
    task: Task | None


def own_file(name: str | os.PathLike[str]) -> Path | None:
    """The path if the name means a file, or None if it names a task.

    Raises:
        UsageError: If it is neither, or the file does not exist.
    """
    if isinstance(name, str) and name in TASKS:
        return None
    path = Path(name)
    if path.is_file():
        return path
    if isinstance(name, str) and path.name == name and suffix_of(name) not in SUFFIXES:
        raise UsageError(
            f'"{name}" is neither a task nor a file.{closest(name, TASKS)} '
            f"Tasks: {', '.join(sorted(TASKS))}. Files end in {', '.join(SUFFIXES)}."
        )
    if path.is_dir():
        raise UsageError(
            f"{path} is a folder. Give a file, or a task name with data_dir for its parent folder."
        )
    raise UsageError(f"the data file {path} does not exist.")


def open_source(request: Request) -> Source:
    """Decide where the data come from and open them; rows are read later.

    Raises:
        UsageError: If the request cannot be met.
    """
    path = own_file(request.name)
    if path is None:
        return _open_task(TASKS[str(request.name)], request)
    if request.split is not None:
        raise UsageError(
            f'the split "{request.split}" was asked of the file {path}, but a file of your own has '
            "no splits. Leave the split out."
        )
    return Source(path.name, "file", f"file {path.name}", read_rows(path), None)


def _open_task(task: Task, request: Request) -> Source:
    splits = candidates(task, request.split, request.purpose, request.allow_test)
    if request.data_dir is None:
        # The hub holds every split, so the preferred one is there.
        split = splits[0]
        # Lines that are joined into documents cannot be limited by their number.
        rows = read_hub(task, split, request.limit if task.join is None else None)
        origin = f"hub {task.hub} {split}"
    else:
        split, files = find(task, _root(request.data_dir), splits)
        rows = _in_turn(map(read_rows, files))
        origin = (
            EMBEDDED
            if request.data_dir == EMBEDDED
            else f"file {', '.join(_short(request.data_dir, files))}"
        )
    warn_if_test(task, split, request.purpose)
    return Source(task.name, split, origin, rows, task)


def _in_turn(parts: Iterable[LocatedRows]) -> LocatedRows:
    """One row of each part in turn, so that a limit takes as many from every file."""
    waiting = list(parts)
    while waiting:
        for part in list(waiting):
            row = next(part, None)
            if row is None:
                waiting.remove(part)
            else:
                yield row


def _root(data_dir: str | os.PathLike[str]) -> Traversable:
    if data_dir == EMBEDDED:
        return resources.files("shoal.data") / EMBEDDED
    return Path(data_dir)


def _short(data_dir: str | os.PathLike[str], files: tuple[Traversable, ...]) -> Iterator[str]:
    # A plan must not depend on where somebody keeps the data.
    return (Path(str(f)).relative_to(data_dir).as_posix() for f in files)
