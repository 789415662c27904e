"""The rule that no mask is chosen on the data that its results are reported on."""

import logging
from typing import Literal

from shoal.core.errors import UsageError
from shoal.data.tasks import Task

Purpose = Literal["calibration", "report"]
"""What data are loaded for: choosing what to remove, or reporting what was lost."""

FLAG = "--allow-calibration-on-test"

_log = logging.getLogger(__name__)


def check_purpose(purpose: str) -> None:
    """Refuse an unknown purpose.

    Raises:
        UsageError: If it is neither "calibration" nor "report".
    """
    if purpose not in ("calibration", "report"):
        raise UsageError(f'unknown purpose "{purpose}". Known: calibration, report.')


def candidates(task: Task, split: str | None, purpose: Purpose, allow_test: bool) -> list[str]:
    """The splits that may be loaded, the preferred one first.

    Args:
        task: The benchmark.
        split: The split that was asked for; None takes the task's defaults.
        purpose: What the data are for.
        allow_test: Whether calibration on a test split was allowed by the long flag.

    Raises:
        UsageError: If the task has no such split, or it must not be calibrated on.
    """
    if split is not None:
        name = task.split_named(split)
        if purpose == "calibration":
            _guard(task, name, allow_test)
        return [name]
    if purpose == "report":
        return [task.report_split]
    # With the flag, a folder that holds nothing but the report split is good enough.
    return [*task.calibration_splits, *([task.report_split] if allow_test else [])]


def _guard(task: Task, split: str, allow_test: bool) -> None:
    if split not in task.test_splits:
        return
    if not allow_test:
        raise UsageError(
            f'calibrating on the split "{split}" of {task.name} is refused: published results are '
            "reported on it, so results would flatter. Use the split "
            f'"{task.calibration_split}", or force it with {FLAG} (allow_test=True).'
        )


def warn_if_test(task: Task, split: str, purpose: Purpose) -> None:
    """Log that a test split is calibrated on, which only the flag makes possible."""
    if purpose == "calibration" and split in task.test_splits:
        _log.warning(
            "calibrating on the test split %r of %s, as %s allows: results reported on it flatter",
            split,
            task.name,
            FLAG,
        )
