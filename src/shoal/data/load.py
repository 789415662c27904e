"""The public loaders: by task name or path to items or documents.

Example:
    >>> items = load_choices("arc_easy", data_dir="embedded", limit=2)
    >>> items.split, len(items), items.items[0].choices[0].continuation
    ('train', 2, ' a leg muscle relaxing after exercise')
"""

import os
from collections.abc import Iterator
from itertools import islice

from shoal.core.errors import UsageError
from shoal.data.files import read_rows, suffix_of
from shoal.data.guard import Purpose
from shoal.data.items import ChoiceItem, ChoiceSet, Corpus
from shoal.data.own import build_own
from shoal.data.rows import located, text
from shoal.data.source import Request, Source, open_source, own_file
from shoal.data.tasks import TASKS

PathLike = os.PathLike[str]


def load_choices(
    name_or_path: str | PathLike,
    *,
    split: str | None = None,
    data_dir: str | PathLike | None = None,
    limit: int | None = None,
    purpose: Purpose = "calibration",
    allow_test: bool = False,
) -> ChoiceSet:
    """Load multiple-choice items.

    Args:
        name_or_path: A task name, or a file of your own with `prompt`, `choices`, `gold`.
        split: The split; by default the one that suits the purpose.
        data_dir: A folder with one folder per task, "embedded" for the small set that comes with
            shoal, or None for the Hugging Face hub.
        limit: Take the first items only.
        purpose: "calibration" refuses splits that results are reported on.
        allow_test: Calibrate on such a split all the same.

    Raises:
        UsageError: If the request or the data are wrong.
        MissingDependencyError: If a package that this source needs is not installed.
    """
    _check_kind(name_or_path, "choice")
    request = Request(name_or_path, split, data_dir, limit, purpose, allow_test)
    source = open_source(request)
    items = islice(_items(source), request.limit)
    return ChoiceSet.of(source.name, source.split, items, source.origin)


def load_corpus(
    name_or_path: str | PathLike,
    *,
    split: str | None = None,
    data_dir: str | PathLike | None = None,
    limit: int | None = None,
    purpose: Purpose = "calibration",
    allow_test: bool = False,
) -> Corpus:
    """Load text documents.

    A `.txt` file is one document, and so is all of WikiText-2. Blank documents are left out.

    Args:
        name_or_path: A task name, or a file of your own: `.txt`, or rows with the key `text`.
        split: As for `load_choices`.
        data_dir: As for `load_choices`.
        limit: Take the first documents only. How many tokens are used is decided later, when
            the text is encoded.
        purpose: As for `load_choices`.
        allow_test: As for `load_choices`.

    Raises:
        UsageError: If the request or the data are wrong.
        MissingDependencyError: If a package that this source needs is not installed.
    """
    _check_kind(name_or_path, "text")
    request = Request(name_or_path, split, data_dir, limit, purpose, allow_test)
    source = open_source(request)
    documents = tuple(islice(_documents(source), request.limit))
    if not documents:
        raise UsageError(f"{source.origin} holds no text: every document is blank.")
    return Corpus.of(source.name, source.split, documents, source.origin)


def load_any(
    name_or_path: str | PathLike,
    *,
    split: str | None = None,
    data_dir: str | PathLike | None = None,
    limit: int | None = None,
    purpose: Purpose = "calibration",
    allow_test: bool = False,
) -> ChoiceSet | Corpus:
    """Load whatever the name or the file holds; the arguments are those of `load_choices`."""
    load = load_corpus if _kind(name_or_path) == "text" else load_choices
    return load(
        name_or_path,
        split=split,
        data_dir=data_dir,
        limit=limit,
        purpose=purpose,
        allow_test=allow_test,
    )


def _items(source: Source) -> Iterator[ChoiceItem]:
    build = (source.task.build if source.task else None) or build_own
    for index, (where, row) in enumerate(source.rows):
        with located(where):
            item = build(row, index)
        yield item


def _documents(source: Source) -> Iterator[str]:
    join = source.task.join if source.task else None
    if join is not None:
        yield from filter(str.strip, (join.join(_texts(source)),))
    else:
        yield from filter(str.strip, _texts(source))


def _texts(source: Source) -> Iterator[str]:
    for where, row in source.rows:
        with located(where):
            document = text(row, "text")
        yield document


def _kind(name_or_path: str | PathLike) -> str:
    """Whether a task or a file holds text or choices."""
    path = own_file(name_or_path)
    if path is None:
        return TASKS[str(name_or_path)].kind
    if suffix_of(path.name) == ".txt":
        return "text"
    where, row = next(read_rows(path))
    if "text" not in row and "choices" not in row:
        raise UsageError(
            f"{where}: neither text nor multiple choice. Keys there: {', '.join(row) or 'none'}. "
            'A file has rows with "text", or with "prompt", "choices" and "gold".'
        )
    return "text" if "choices" not in row else "choice"


def _check_kind(name_or_path: str | PathLike, wanted: str) -> None:
    path = own_file(name_or_path)
    if path is None:
        kind = TASKS[str(name_or_path)].kind
    elif wanted == "choice" and suffix_of(path.name) == ".txt":
        kind = "text"
    else:
        return
    if kind != wanted:
        words = {"text": "text", "choice": "multiple choice"}
        fitting = ", ".join(sorted(t.name for t in TASKS.values() if t.kind == wanted))
        raise UsageError(
            f"{name_or_path} is {words[kind]}, but {words[wanted]} is needed. "
            f"Tasks with {words[wanted]}: {fitting}."
        )
