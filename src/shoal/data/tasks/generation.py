"""Questions that a model answers in its own words: GSM8K (Cobbe et al. 2021, 2110.14168)."""

import re

from shoal.core.errors import UsageError
from shoal.data.items import PromptItem
from shoal.data.rows import Row, spelled, text
from shoal.data.tasks.task import Hub, Task

MARK = "####"
"""What stands before the final answer in a worked solution."""

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")


def build_gsm8k(row: Row, index: int) -> PromptItem:
    """Build an item from `question, answer`.

    The answer on the hub is a worked solution that ends in `#### 42`; local copies may hold the
    bare number, as text or as a number.
    """
    question, answer = text(row, "question").strip(), spelled(row, "answer")
    gold = answer.rpartition(MARK)[2].strip().replace(",", "")
    if not _NUMBER.fullmatch(gold):
        raise UsageError(
            f'the "answer" must be a number, or end in "{MARK}" and one, got {answer[-60:]!r}.'
        )
    return PromptItem(str(index), f"Question: {question}\nAnswer:", (gold,))


GSM8K = Task(
    name="gsm8k",
    kind="prompt",
    description="grade-school word problems whose answer is a number",
    licence="MIT",
    hub=Hub("openai/gsm8k", "main"),
    splits=("train", "test"),
    calibration_splits=("train",),
    report_split="test",
    test_splits=frozenset({"test"}),
    build=build_gsm8k,
)
