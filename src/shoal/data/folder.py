"""Finding the files of a task below a local data folder.

A split is `<folder>/<task>/<split>.jsonl` (or .json, .parquet; .txt for text), under any usual name
of the split. Where a task is spread over many files it is every `*-<split>.jsonl`, in the order of
their names; for the training part also files whose name tells no split.
"""

from importlib.resources.abc import Traversable
from pathlib import PurePath

from shoal.core.errors import UsageError
from shoal.data.files import SUFFIXES, suffix_of
from shoal.data.guard import FLAG
from shoal.data.splits import ALIASES, aliases
from shoal.data.tasks import Task

Found = tuple[str, tuple[Traversable, ...]]
"""A split and its files."""


def find(task: Task, root: Traversable, splits: list[str]) -> Found:
    """The first of some splits that a folder holds.

    Args:
        task: The benchmark.
        root: The data folder, with one folder per task.
        splits: Splits to look for, the preferred one first.

    Raises:
        UsageError: If there is none; the message lists what is there.
    """
    if not root.is_dir():
        raise UsageError(f"the data folder {root} does not exist.")
    home = _home(task, root)
    for split in splits:
        files = _files(task, home, split)
        if files:
            return split, files
    raise UsageError(
        f"{home} holds no {' or '.join(splits)} split of {task.name}; it holds: "
        f"{_listing(home)}. {_advice(task, home, splits)}"
    )


def _home(task: Task, root: Traversable) -> Traversable:
    for name in task.folder_names:
        if (root / name).is_dir():
            return root / name
    raise UsageError(
        f"{root} has no folder {' or '.join(task.folder_names)} for the task {task.name}; "
        f"it holds: {_listing(root)}."
    )


def _files(task: Task, home: Traversable, split: str) -> tuple[Traversable, ...]:
    kinds = [s for s in SUFFIXES if s != ".txt" or task.kind == "text"]
    files = sorted(
        (f for f in home.iterdir() if f.is_file() and suffix_of(f.name) in kinds),
        key=lambda f: f.name,
    )
    for name in aliases(split):
        for kind in kinds:
            exact = tuple(f for f in files if f.name.lower() == name + kind)
            if exact:
                return exact
    if not task.spread:
        return ()
    marked = tuple(f for f in files if _marked(f, aliases(split)))
    if marked or split != "train":
        return marked
    every = tuple(name for names in ALIASES.values() for name in names)
    return tuple(f for f in files if not _marked(f, every))


def _marked(file: Traversable, names: tuple[str, ...]) -> bool:
    stem = PurePath(file.name).stem.lower()
    return any(stem == name or stem.endswith(f"-{name}") for name in names)


def _advice(task: Task, home: Traversable, splits: list[str]) -> str:
    there = [s for s in task.splits if s not in splits and _files(task, home, s)]
    wanted = f"Add {splits[0]}.jsonl in the schema of {task.hub.id}"
    if not there:
        return f"{wanted}."
    forced = [s for s in there if s in task.test_splits]
    flag = f" (to calibrate on {forced[0]} add {FLAG})" if forced else ""
    return f"{wanted}, or choose the split {' or '.join(there)}{flag}."


def _listing(folder: Traversable) -> str:
    return ", ".join(sorted(f.name for f in folder.iterdir())) or "nothing"
