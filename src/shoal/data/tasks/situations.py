"""Everyday situations: PIQA, HellaSwag, Social IQa, WinoGrande, BoolQ.

Published results on all five are on the validation split, because the test labels are hidden.
"""

import re
from collections.abc import Callable

from shoal.core.errors import UsageError
from shoal.data.items import Choice, ChoiceItem
from shoal.data.rows import Row, index_of, integer, text, texts
from shoal.data.tasks.task import Hub, Task


def build_piqa(row: Row, index: int) -> ChoiceItem:
    """Build an item from `goal, sol1, sol2, label`."""
    context = f"Question: {text(row, 'goal')}\nAnswer:"
    choices = tuple(Choice(context, f" {text(row, key)}") for key in ("sol1", "sol2"))
    return ChoiceItem(str(index), choices, integer(row, "label"))


def build_hellaswag(row: Row, index: int) -> ChoiceItem:
    """Build an item from `activity_label, ctx_a, ctx_b, endings, label`."""
    start = f"{text(row, 'ctx_a')} {text(row, 'ctx_b').capitalize()}"
    context = _clean(f"{text(row, 'activity_label')}: {start}")
    choices = tuple(Choice(context, f" {_clean(e)}") for e in texts(row, "endings"))
    return ChoiceItem(str(index), choices, integer(row, "label"))


def _clean(passage: str) -> str:
    # Articles of WikiHow carry markers such as [title] and [step].
    passage = passage.strip().replace(" [title]", ". ")
    return re.sub(r"\[.*?\]", "", passage).replace("  ", " ")


def build_social_iqa(row: Row, index: int) -> ChoiceItem:
    """Build an item from `context, question, answerA, answerB, answerC, label` (1 to 3)."""
    context = f"Q: {text(row, 'context')} {text(row, 'question')}\nA:"
    choices = tuple(Choice(context, f" {text(row, f'answer{c}')}") for c in "ABC")
    gold = index_of(str(integer(row, "label")), ("1", "2", "3"))
    return ChoiceItem(str(index), choices, gold)


def build_winogrande(row: Row, index: int) -> ChoiceItem:
    """Build an item from `sentence, option1, option2, answer` by partial evaluation.

    Each option fills the blank in the context; what is scored is the rest of the sentence, the
    same for both (Trinh and Le, 2018).
    """
    before, blank, after = text(row, "sentence").partition("_")
    if not blank:
        raise UsageError('the "sentence" has no blank "_" to fill.')
    options = (text(row, "option1"), text(row, "option2"))
    choices = tuple(Choice(before + o, f" {after.strip()}") for o in options)
    return ChoiceItem(str(index), choices, index_of(str(integer(row, "answer")), ("1", "2")))


def build_boolq(row: Row, index: int) -> ChoiceItem:
    """Build an item from `passage, question` and `label` (SuperGLUE) or `answer` (BoolQ)."""
    context = f"{text(row, 'passage')}\nQuestion: {text(row, 'question')}?\nAnswer:"
    answer = row.get("answer")
    gold = int(answer) if isinstance(answer, bool) else integer(row, "label")
    return ChoiceItem(str(index), (Choice(context, " no"), Choice(context, " yes")), gold)


def _task(
    name: str,
    description: str,
    licence: str,
    hub: Hub,
    build: Callable[[Row, int], ChoiceItem],
) -> Task:
    return Task(
        name=name,
        kind="choice",
        description=description,
        licence=licence,
        hub=hub,
        splits=("train", "validation", "test"),
        calibration_splits=("train",),
        report_split="validation",
        test_splits=frozenset({"validation", "test"}),
        build=build,
    )


PIQA = _task(
    "piqa",
    "which of two ways reaches a physical goal",
    "AFL-3.0",
    Hub("baber/piqa"),
    build_piqa,
)
HELLASWAG = _task(
    "hellaswag",
    "which of four endings continues a scene",
    "MIT",
    Hub("Rowan/hellaswag"),
    build_hellaswag,
)
SOCIAL_IQA = _task(
    "social_iqa",
    "what people feel, want or do next",
    "not stated by the source",
    Hub("allenai/social_i_qa", "default", converted=True),
    build_social_iqa,
)
WINOGRANDE = _task(
    "winogrande",
    "which of two names a blank refers to",
    "CC BY",
    Hub("allenai/winogrande", "winogrande_xl", converted=True),
    build_winogrande,
)
BOOLQ = _task(
    "boolq",
    "yes-or-no questions about a passage",
    "CC BY-SA 3.0",
    Hub("google/boolq"),
    build_boolq,
)
