"""Calibration and report data: loading, split guard, tokens; imports no torch."""

from shoal.data.encode import (
    EncodedChoice,
    EncodedItem,
    EncodedText,
    Tokenisation,
    encode_choices,
    encode_corpus,
)
from shoal.data.items import Choice, ChoiceItem, ChoiceSet, Corpus, PromptItem, PromptSet
from shoal.data.load import load_any, load_choices, load_corpus, load_prompts
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
    "PromptItem",
    "PromptSet",
    "Task",
    "Tokenisation",
    "encode_choices",
    "encode_corpus",
    "load_any",
    "load_choices",
    "load_corpus",
    "load_prompts",
    "task",
]
