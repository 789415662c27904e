"""Evaluations on disk: sqlite in WAL mode, append only, shared by all searches on an objective.

An evaluation is stored under a context (model, dtype, data, objective) and a mask. A batch is
written in one transaction, so a killed process loses at most the batch in flight. Each batch is
also noted before it starts, which lets a test (or a curious user) see that nothing is computed
twice.
"""

import json
import sqlite3
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from shoal.core import fingerprint
from shoal.core.errors import UsageError
from shoal.core.evaluation import Cost, Evaluation
from shoal.core.mask import Mask

SCHEMA = """
CREATE TABLE IF NOT EXISTS contexts (id TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS evaluations (
    context TEXT NOT NULL REFERENCES contexts (id),
    mask TEXT NOT NULL,
    losses BLOB NOT NULL,
    mean REAL,
    stderr REAL,
    created TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
    blocks REAL NOT NULL DEFAULT 0,
    seconds REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (context, mask)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS batches (
    id INTEGER PRIMARY KEY, context TEXT NOT NULL, masks TEXT NOT NULL,
    started TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, finished TEXT
);
CREATE TABLE IF NOT EXISTS partials (
    context TEXT NOT NULL, partition TEXT NOT NULL, mask TEXT NOT NULL, part INTEGER NOT NULL,
    losses BLOB NOT NULL, blocks REAL NOT NULL, seconds REAL NOT NULL,
    PRIMARY KEY (context, partition, mask, part)
) WITHOUT ROWID;
"""


class Store:
    """Known evaluations of one context.

    Args:
        path: The sqlite file; None keeps everything in memory.
        context: What the losses depend on besides the mask; a JSON value.
        weights: Weights of the examples, to summarise stored losses.

    Raises:
        UsageError: If the file is not a store.
    """

    def __init__(
        self, path: Path | None, context: dict[str, Any], weights: Sequence[float] | None = None
    ) -> None:
        self.context = fingerprint.of_json(context)
        self._weights = weights
        if path is not None and path.is_dir():
            raise UsageError(f"{path} is a folder; --store takes the name of a file.")
        try:
            self._db = sqlite3.connect(path or ":memory:", isolation_level=None, timeout=60)
        except sqlite3.Error as error:
            raise UsageError(f"{path} cannot be opened as a store: {error}.") from error
        try:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.executescript(SCHEMA)
            self._add_costs()
            self._db.execute(
                "INSERT OR IGNORE INTO contexts VALUES (?, ?)",
                (self.context, json.dumps(context, sort_keys=True)),
            )
        except sqlite3.DatabaseError as error:
            self.close()
            if "readonly" in str(error) or "locked" in str(error):
                raise UsageError(
                    f"{path} cannot be written to ({error}). Make it writable, or name another "
                    "store with --store."
                ) from error
            raise UsageError(
                f"{path} is not a store of evaluations ({error}). Name another with --store, or "
                "delete it if it holds nothing that you need."
            ) from error

    def _add_costs(self) -> None:
        """Stores of the first version know no costs."""
        columns = {row[1] for row in self._db.execute("PRAGMA table_info(evaluations)")}
        if not {"context", "mask", "losses"} <= columns:
            raise sqlite3.DatabaseError("its table `evaluations` is somebody else's")
        for name in {"blocks", "seconds"} - columns:
            self._db.execute(f"ALTER TABLE evaluations ADD COLUMN {name} REAL NOT NULL DEFAULT 0")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __len__(self) -> int:
        query = "SELECT COUNT(*) FROM evaluations WHERE context = ?"
        return int(self._db.execute(query, (self.context,)).fetchone()[0])

    def get(self, mask: Mask) -> Evaluation | None:
        """The stored evaluation of a mask, if there is one."""
        row = self._db.execute(
            "SELECT losses, blocks, seconds FROM evaluations WHERE context = ? AND mask = ?",
            (self.context, str(mask)),
        ).fetchone()
        if row is None:
            return None
        losses = array("d")
        losses.frombytes(row[0])
        return Evaluation.of(mask, losses, self._weights, Cost(row[1], row[2]))

    def begin(self, masks: Iterable[Mask]) -> int:
        """Note that a batch starts; returns its number."""
        cursor = self._db.execute(
            "INSERT INTO batches (context, masks) VALUES (?, ?)",
            (self.context, json.dumps([str(m) for m in masks])),
        )
        return int(cursor.lastrowid or 0)

    def commit(self, batch: int, evaluations: Iterable[Evaluation]) -> None:
        """Write the evaluations of a batch in one transaction."""
        rows = [
            (
                self.context,
                str(e.mask),
                array("d", e.losses).tobytes(),
                e.mean,
                e.stderr,
                e.cost.blocks,
                e.cost.seconds,
            )
            for e in evaluations
        ]
        # As a context the connection commits at the end, or rolls back whatever went wrong.
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany(
                "INSERT OR IGNORE INTO evaluations "
                "(context, mask, losses, mean, stderr, blocks, seconds) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                rows,
            )
            self._db.execute(
                "UPDATE batches SET finished = CURRENT_TIMESTAMP WHERE id = ?", (batch,)
            )

    def get_partial(
        self, partition: str, mask: Mask, part: int
    ) -> tuple[bytes, float, float] | None:
        """Losses of a mask on one part of a partition of the data, their block passes and time."""
        row: tuple[bytes, float, float] | None = self._db.execute(
            "SELECT losses, blocks, seconds FROM partials "
            "WHERE context = ? AND partition = ? AND mask = ? AND part = ?",
            (self.context, partition, str(mask), part),
        ).fetchone()
        return row

    def put_partials(
        self, partition: str, part: int, rows: Iterable[tuple[Mask, bytes, float, float]]
    ) -> None:
        """Write the losses of masks on one part in one transaction."""
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany(
                "INSERT OR IGNORE INTO partials VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(self.context, partition, str(mask), part, *rest) for mask, *rest in rows],
            )

    def batches(self) -> list[tuple[list[str], bool]]:
        """Every batch ever started in this context: its masks, and whether it finished."""
        rows = self._db.execute(
            "SELECT masks, finished IS NOT NULL FROM batches WHERE context = ? ORDER BY id",
            (self.context,),
        )
        return [(json.loads(masks), bool(done)) for masks, done in rows]
