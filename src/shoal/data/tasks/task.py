"""What shoal knows about a benchmark: source, splits, and how a row becomes an item."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from shoal.core.errors import UsageError
from shoal.data.items import ChoiceItem, PromptItem
from shoal.data.rows import Row
from shoal.data.splits import canonical

Builder = Callable[[Row, int], ChoiceItem] | Callable[[Row, int], PromptItem]
"""Turns a row of the hub schema and its index into an item of the task's kind."""


@dataclass(frozen=True)
class Hub:
    """Where a task lives on the Hugging Face hub.

    Attributes:
        id: Data set id.
        config: Configuration of it.
        converted: Read the Parquet copy that the hub makes, because the data set itself is a
            loading script, which `datasets` 4 and later refuse to run.
        max_documents: How many rows a data set is read to when no limit is given; None reads all.
    """

    id: str
    config: str | None = None
    converted: bool = False
    max_documents: int | None = None

    def __str__(self) -> str:
        return f"{self.id}:{self.config}" if self.config else self.id


@dataclass(frozen=True)
class Task:
    """One benchmark.

    Attributes:
        name: Name, as in lm-eval.
        kind: "text", "choice" or "prompt".
        description: One line.
        licence: Licence of the data.
        hub: Its place on the hub.
        splits: Its splits.
        calibration_splits: Splits to calibrate on, the preferred one first.
        report_split: Split that results are reported on; none of the above.
        test_splits: Splits that published results are reported on. Calibration on them is refused.
            Where the test labels are hidden this is the validation split.
        build: Turns a row into an item; None for text.
        join: For text whose rows are lines: what to put between them to restore one document.
        folders: Folder names to look for below a local data folder; the name itself by default.
        spread: Whether a split may be spread over many files, `*-<split>.jsonl`.
    """

    name: str
    kind: Literal["text", "choice", "prompt"]
    description: str
    licence: str
    hub: Hub
    splits: tuple[str, ...]
    calibration_splits: tuple[str, ...]
    report_split: str
    test_splits: frozenset[str]
    build: Builder | None = None
    join: str | None = None
    folders: tuple[str, ...] = ()
    spread: bool = False

    @property
    def calibration_split(self) -> str:
        """The preferred split to calibrate on."""
        return self.calibration_splits[0]

    @property
    def folder_names(self) -> tuple[str, ...]:
        """The folder names to look for below a local data folder."""
        return self.folders or (self.name,)

    def split_named(self, split: str) -> str:
        """The task's own name of a split that may be given by an alias, e.g. "dev".

        Raises:
            UsageError: If the task has no such split.
        """
        name = canonical(split)
        if name not in self.splits:
            raise UsageError(
                f'{self.name} has no split "{split}". Its splits: {", ".join(self.splits)}.'
            )
        return name
