"""Rows of one local file: JSON lines, a JSON list, Parquet or plain text."""

import json
from collections.abc import Callable, Iterator
from importlib.resources.abc import Traversable
from pathlib import PurePath

from shoal.core.errors import UsageError
from shoal.data.lazy import require
from shoal.data.rows import Row

LocatedRows = Iterator[tuple[str, Row]]
"""Rows with their place, e.g. "arc_easy/train.jsonl line 3", which every error about one names."""


def read_rows(file: Traversable) -> LocatedRows:
    """Read a file row by row, lazily where the format allows it.

    A `.txt` file is one row with the key `text`: its lines belong together.

    Args:
        file: The file, on disk or inside a package.

    Yields:
        The place of a row, and the row.

    Raises:
        UsageError: If the file is of an unknown kind, damaged or empty.
    """
    suffix = suffix_of(file.name)
    if suffix not in _READERS:
        raise UsageError(
            f'{file} has the ending "{suffix}"; the kinds that can be read are '
            f"{', '.join(SUFFIXES)}."
        )
    empty = True
    for located_row in _READERS[suffix](file):
        empty = False
        yield located_row
    if empty:
        raise UsageError(f"{file} is empty. Give a file with at least one row.")


def suffix_of(name: str) -> str:
    """The ending of a file name in lower case, with its dot."""
    return PurePath(name).suffix.lower()


def _jsonl(file: Traversable) -> LocatedRows:
    # Binary lines end at \n only: text mode and splitlines() also cut at characters that JSON
    # strings may hold.
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            where = f"{file} line {number}"
            decoded = _decoded(line, where).strip()
            if decoded:
                yield where, _record(_parsed(decoded, where), where)


def _json(file: Traversable) -> LocatedRows:
    content = _decoded(file.read_bytes(), str(file))
    if not content.strip():
        return
    rows = _parsed(content, str(file))
    if not isinstance(rows, list):
        raise UsageError(f"{file} must hold a JSON list of objects, got {type(rows).__name__}.")
    for number, row in enumerate(rows, start=1):
        where = f"{file} item {number}"
        yield where, _record(row, where)


def _parquet(file: Traversable) -> LocatedRows:
    parquet = require("pyarrow.parquet", f"reading {file}")
    with file.open("rb") as opened:
        try:
            table = parquet.ParquetFile(opened)
        except (OSError, ValueError) as error:
            raise UsageError(f"{file} is no readable Parquet file: {error}") from error
        number = 0
        for batch in table.iter_batches():
            for row in batch.to_pylist():
                number += 1
                yield f"{file} item {number}", row


def _txt(file: Traversable) -> LocatedRows:
    content = _decoded(file.read_bytes(), str(file)).replace("\r\n", "\n")
    if content.strip():
        yield str(file), {"text": content}


def _decoded(content: bytes, where: str) -> str:
    try:
        # Editors on Windows put a byte-order mark first, which is no part of the text.
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{where} is not UTF-8 text: {error}. Convert it to UTF-8.") from error


def _parsed(content: str, where: str) -> object:
    try:
        parsed: object = json.loads(content)
    except json.JSONDecodeError as error:
        raise UsageError(f"{where} is not valid JSON: {error}.") from error
    return parsed


def _record(row: object, where: str) -> Row:
    if not isinstance(row, dict):
        raise UsageError(f"{where} must be a JSON object, got {str(row)[:60]!r}.")
    return row


_READERS: dict[str, Callable[[Traversable], LocatedRows]] = {
    ".jsonl": _jsonl,
    ".json": _json,
    ".parquet": _parquet,
    ".txt": _txt,
}
SUFFIXES = tuple(_READERS)
"""The kinds of file that can be read, in the order in which a folder is searched."""
