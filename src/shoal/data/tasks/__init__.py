"""The benchmarks that shoal knows by name, named as in lm-eval."""

from collections.abc import Mapping
from types import MappingProxyType

from shoal.core.errors import unknown_name
from shoal.data.tasks.commonsense import COMMONSENSE_170K
from shoal.data.tasks.generation import GSM8K
from shoal.data.tasks.science import ARC_CHALLENGE, ARC_EASY, OPENBOOKQA
from shoal.data.tasks.situations import BOOLQ, HELLASWAG, PIQA, SOCIAL_IQA, WINOGRANDE
from shoal.data.tasks.task import Hub, Task
from shoal.data.tasks.text import C4, LAMBADA, WIKITEXT2

__all__ = ["TASKS", "Hub", "Task", "task"]

_ALL = (
    WIKITEXT2,
    C4,
    LAMBADA,
    ARC_EASY,
    ARC_CHALLENGE,
    OPENBOOKQA,
    PIQA,
    WINOGRANDE,
    BOOLQ,
    HELLASWAG,
    SOCIAL_IQA,
    COMMONSENSE_170K,
    GSM8K,
)

TASKS: Mapping[str, Task] = MappingProxyType({t.name: t for t in _ALL})
"""All tasks by name."""


def task(name: str) -> Task:
    """The task of this name.

    Raises:
        UsageError: If there is none; the message lists the names.
    """
    if name not in TASKS:
        raise unknown_name("task", name, TASKS)
    return TASKS[name]
