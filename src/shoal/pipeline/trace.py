"""The trace of a search: every mask it asked for, as a file and as a figure."""

import json
from collections.abc import Iterable
from pathlib import Path

from shoal.engine.ledger import TraceRow


class TraceFile:
    """Writes rows as they come, one JSON object a line.

    A search that is run again asks for the same masks again, so the file is begun anew and holds
    the whole trace, with what the masks cost when they were computed.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")

    def __enter__(self) -> "TraceFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, rows: Iterable[TraceRow]) -> None:
        """Add rows; they are on disk when this returns."""
        self._file.writelines(json.dumps(row.to_json()) + "\n" for row in rows)
        self._file.flush()
