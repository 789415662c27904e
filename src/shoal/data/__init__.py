"""Calibration and report data: loading, split guard, tokens; imports no torch."""

from shoal.data.encode import (
    EncodedChoice,
    EncodedItem,
    EncodedText,
    Tokenisation,
    encode_choices,
    encode_corpus,
)
from shoal.data.items import Choice, ChoiceItem, ChoiceSet, Corpus
from shoal.data.load import load_any, load_choices, load_corpus
from shoal.data.tasks import TASKS, Task, task

__all__ = [
    "TASKS",
    "Choice",
    "ChoiceItem",
    "ChoiceSet",
    "Corpus",
    "EncodedChoice",
    "EncodedItem",
    "EncodedText",
    "Task",
    "Tokenisation",
    "encode_choices",
    "encode_corpus",
    "load_any",
    "load_choices",
    "load_corpus",
    "task",
]
