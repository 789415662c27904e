"""What is dear to compute, kept beside the evaluations: continuations, scores, gradients."""

import sqlite3
from collections.abc import Iterator, MutableMapping
from contextlib import closing
from pathlib import Path

from shoal.core.errors import UsageError

SCHEMA = "CREATE TABLE IF NOT EXISTS artifacts (key TEXT PRIMARY KEY, value BLOB NOT NULL)"


class Artifacts(MutableMapping[str, bytes]):
    """A dictionary in memory until it is attached to a store's file, and in both from then on.

    Before the folder of a run exists there is nowhere to write; what was computed until then is
    written when it does.

    Args:
        path: A store whose artifacts are read if the file is there; nothing is written to it yet.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._values: dict[str, bytes] = {}
        self._path: Path | None = None
        if path is not None and path.is_file():
            self._values |= _read(path)

    def attach(self, path: Path) -> None:
        """Write what there is, and everything that comes, to a store's file."""
        self._path = path
        with closing(self._open()) as connection:
            known = {key for (key,) in connection.execute("SELECT key FROM artifacts")}
            new = [(k, v) for k, v in self._values.items() if k not in known]
            connection.executemany("INSERT OR REPLACE INTO artifacts VALUES (?, ?)", new)

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(str(self._path), isolation_level=None, timeout=60)
        connection.execute(SCHEMA)
        return connection

    def __getitem__(self, key: str) -> bytes:
        return self._values[key]

    def __setitem__(self, key: str, value: bytes) -> None:
        self._values[key] = value
        if self._path is not None:
            with closing(self._open()) as connection:
                connection.execute("INSERT OR REPLACE INTO artifacts VALUES (?, ?)", (key, value))

    def __delitem__(self, key: str) -> None:
        del self._values[key]
        if self._path is not None:
            with closing(self._open()) as connection:
                connection.execute("DELETE FROM artifacts WHERE key = ?", (key,))

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def check_place(path: Path) -> None:
    """Refuse a file that artifacts cannot be kept in.

    Raises:
        UsageError: If it is a folder, lies in none, or is no sqlite file.
    """
    if path.is_dir() or not path.parent.is_dir():
        reason = "is a folder" if path.is_dir() else "lies in a folder that does not exist"
        raise UsageError(f"the store {path} {reason}. Name a file with --store.")
    if not path.is_file():
        return
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            connection.execute("SELECT name FROM sqlite_master").fetchall()
    except sqlite3.DatabaseError as error:
        raise UsageError(
            f"the store {path} is no sqlite file ({error}). Name another with --store."
        ) from error


def _read(path: Path) -> dict[str, bytes]:
    """The artifacts of a file; none if it is no store, which opening the store will say."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=60)) as connection:
            return dict(connection.execute("SELECT key, value FROM artifacts"))
    except sqlite3.DatabaseError:
        return {}
