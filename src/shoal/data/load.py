"""The public loaders: by task name or path to items, documents or prompts.

Example:
    >>> items = load_choices("arc_easy", data_dir="embedded", limit=2)
    >>> items.split, len(items), items.items[0].choices[0].continuation
    ('train', 2, ' a leg muscle relaxing after exercise')
"""

import os
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeVar, cast

from shoal.core.errors import UsageError
from shoal.data.files import read_rows, suffix_of
from shoal.data.guard import Purpose
from shoal.data.items import ChoiceItem, ChoiceSet, Corpus, PromptItem, PromptSet
from shoal.data.own import build_own, build_own_prompt, kind_of_row
from shoal.data.rows import Row, located, text
from shoal.data.source import Request, Source, open_source, own_file
from shoal.data.tasks import TASKS

PathLike = os.PathLike[str]
Item = TypeVar("Item", ChoiceItem, PromptItem)

WORDS = {"text": "text", "choice": "multiple choice", "prompt": "prompts"}
"""Kinds of data as people say them."""


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
    items = islice(_items(source, build_own), request.limit)
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


def load_prompts(
    name_or_path: str | PathLike,
    *,
    split: str | None = None,
    data_dir: str | PathLike | None = None,
    limit: int | None = None,
    purpose: Purpose = "calibration",
    allow_test: bool = False,
) -> PromptSet:
    """Load prompts that a model continues, with the answers that are right.

    Args:
        name_or_path: A task name, or a file of your own with `prompt` and `answer`.
        split: As for `load_choices`.
        data_dir: As for `load_choices`.
        limit: Take the first prompts only.
        purpose: As for `load_choices`.
        allow_test: As for `load_choices`.

    Raises:
        UsageError: If the request or the data are wrong.
        MissingDependencyError: If a package that this source needs is not installed.
    """
    _check_kind(name_or_path, "prompt")
    request = Request(name_or_path, split, data_dir, limit, purpose, allow_test)
    source = open_source(request)
    items = islice(_items(source, build_own_prompt), request.limit)
    return PromptSet.of(source.name, source.split, items, source.origin)


def load_any(
    name_or_path: str | PathLike,
    *,
    split: str | None = None,
    data_dir: str | PathLike | None = None,
    limit: int | None = None,
    purpose: Purpose = "calibration",
    allow_test: bool = False,
) -> ChoiceSet | Corpus | PromptSet:
    """Load whatever the name or the file holds; the arguments are those of `load_choices`."""
    loaders: dict[str, Callable[..., ChoiceSet | Corpus | PromptSet]] = {
        "text": load_corpus,
        "choice": load_choices,
        "prompt": load_prompts,
    }
    return loaders[_kind(name_or_path)](
        name_or_path,
        split=split,
        data_dir=data_dir,
        limit=limit,
        purpose=purpose,
        allow_test=allow_test,
    )


def _items(source: Source, own: Callable[[Row, int], Item]) -> Iterator[Item]:
    # The kind of the task was checked, so its builder makes the same items.
    build = own if source.task is None else cast(Callable[[Row, int], Item], source.task.build)
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
    """Whether a task or a file holds text, choices or prompts."""
    path = own_file(name_or_path)
    if path is None:
        return TASKS[str(name_or_path)].kind
    if suffix_of(path.name) == ".txt":
        return "text"
    where, row = next(read_rows(path))
    kind = kind_of_row(row)
    if kind is None:
        raise UsageError(
            f"{where}: neither text nor multiple choice nor prompts. "
            f"Keys there: {', '.join(row) or 'none'}. "
            'A file has rows with "text", with "prompt", "choices" and "gold", or with "prompt" '
            'and "answer".'
        )
    return kind


def _check_kind(name_or_path: str | PathLike, wanted: str) -> None:
    path = own_file(name_or_path)
    if path is None:
        kind = TASKS[str(name_or_path)].kind
    elif wanted != "text" and suffix_of(path.name) == ".txt":
        kind = "text"
    else:
        return
    if kind != wanted:
        needed = "are" if wanted == "prompt" else "is"
        fitting = ", ".join(sorted(t.name for t in TASKS.values() if t.kind == wanted))
        raise UsageError(
            f"{name_or_path} is {WORDS[kind]}, but {WORDS[wanted]} {needed} needed. "
            f"Tasks with {WORDS[wanted]}: {fitting}."
        )
