"""School science questions: ARC-Easy, ARC-Challenge, OpenBookQA."""

from collections.abc import Callable

from shoal.core.errors import UsageError
from shoal.data.items import Choice, ChoiceItem
from shoal.data.rows import Row, index_of, text, texts, value
from shoal.data.tasks.task import Hub, Task


def build_arc(row: Row, index: int) -> ChoiceItem:
    """Build an item from `id, question, choices{text,label}, answerKey`."""
    return _build(row, index, f"Question: {text(row, 'question')}\nAnswer:")


def build_openbookqa(row: Row, index: int) -> ChoiceItem:
    """Build an item from `id, question_stem, choices{text,label}, answerKey`."""
    return _build(row, index, text(row, "question_stem"))


def _build(row: Row, index: int, context: str) -> ChoiceItem:
    options = value(row, "choices")
    if not isinstance(options, dict):
        raise UsageError(
            'the key "choices" must hold {"text": [...], "label": [...]}, '
            f"got {str(options)[:60]!r}."
        )
    # Some items are labelled 1 to 4, and some have three or five choices: only the item's own
    # labels say which choice an answer key means.
    gold = index_of(text(row, "answerKey"), texts(options, "label"))
    choices = tuple(Choice(context, f" {t}") for t in texts(options, "text"))
    return ChoiceItem(str(row.get("id", index)), choices, gold)


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
        calibration_splits=("train", "validation"),
        report_split="test",
        test_splits=frozenset({"test"}),
        build=build,
    )


ARC_EASY = _task(
    "arc_easy",
    "grade-school science questions, the easy part",
    "CC BY-SA 4.0",
    Hub("allenai/ai2_arc", "ARC-Easy"),
    build_arc,
)
ARC_CHALLENGE = _task(
    "arc_challenge",
    "grade-school science questions that retrieval and co-occurrence get wrong",
    "CC BY-SA 4.0",
    Hub("allenai/ai2_arc", "ARC-Challenge"),
    build_arc,
)
OPENBOOKQA = _task(
    "openbookqa",
    "elementary science questions that need a common fact",
    "Apache-2.0",
    Hub("allenai/openbookqa", "main"),
    build_openbookqa,
)
