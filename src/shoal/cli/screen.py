"""What people see: stages and progress on standard error, tables on standard output."""

import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from shoal.core.evaluation import Evaluation
from shoal.engine.ledger import TraceRow
from shoal.pipeline.listener import Listener

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


class Screen(Listener):
    """Draws a run's progress: a bar on a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._best = ""
        self._total = self._done = 0
        self._start = self._last = 0.0

    def stage(self, text: str) -> None:
        """A stage starts."""
        err.print(text, style="bold", markup=False, soft_wrap=True)

    def note(self, text: str) -> None:
        """Something the user should know."""
        err.print(f"  {text}", markup=False, soft_wrap=True)

    def work(self, total: int) -> None:
        """A stretch of work starts."""
        self._total, self._done, self._best = total, 0, ""
        self._start = self._last = time.monotonic()
        if err.is_terminal:
            self._progress = Progress(
                TextColumn("  "),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.description}", markup=False),
                console=err,
                transient=True,
            )
            self._progress.add_task("", total=total)
            self._progress.start()

    def advance(self, steps: int = 1) -> None:
        """Some steps are done."""
        self._done += steps
        now = time.monotonic()
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], advance=steps, description=self._best)
        elif now - self._last > 30 and self._done < self._total:
            left = (now - self._start) / self._done * (self._total - self._done)
            text = f"  {self._done} of {self._total}, about {left:.0f} s left {self._best}"
            err.print(text, markup=False, soft_wrap=True)
            self._last = now

    def best(self, evaluation: Evaluation, row: TraceRow | None = None) -> None:
        """A batch is done."""
        self._best = f"{evaluation.mask} loss {evaluation.mean:.4f}"
        if row is not None and row.best is not None:
            self._best += f", best so far {row.best:.4f}"
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], description=self._best)

    def done(self) -> None:
        """The stretch of work is over."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = False
) -> None:
    """Print a table; columns keep their full width where output is not a terminal.

    Args:
        title: Title, or an empty string.
        header: Column names; no header is drawn if all are empty.
        rows: The cells.
        numbers: Whether all columns but the first hold numbers, which stand to the right.
    """
    drawn = Table(
        title=title or None, title_justify="left", title_style="bold", show_header=any(header)
    )
    for i, name in enumerate(header):
        right = numbers and i > 0
        drawn.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*map(Text, row))
    console = out if sys.stdout.isatty() else Console(width=200, highlight=False)
    console.print(drawn)
