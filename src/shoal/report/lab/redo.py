"""The command that does a lab run again."""

import shlex
from collections.abc import Mapping
from typing import Any

from shoal.config.lab_run import LabRunConfig

FREE = frozenset({"out", "store", "workers", "batch"})
"""Options that change no result."""


def command(settings: Mapping[str, Any]) -> str:
    """A run's command: its models, and what differs from the defaults.

    Args:
        settings: As they stand in the record.
    """
    usual = LabRunConfig().model_dump(mode="json")
    flags = []
    for name, value in settings.items():
        if name not in usual or name in FREE or value == usual[name]:
            continue
        flags.append(f"--{name.replace('_', '-')} {shlex.quote(_text(value))}")
    return " ".join(["shoal lab run", *flags])


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
