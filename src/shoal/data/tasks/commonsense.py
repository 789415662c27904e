"""Commonsense-170k: eight benchmarks as instructions (Hu et al. 2023, LLM-Adapters, 2304.01933).

A row has the right answer only as a label; the wrong ones are read from the tail of its
instruction, `Answer format: answer1/answer2/...`. The prompt is the instruction and "Answer:",
and what is scored is the whole sentence of the row, "the correct answer is answer2", with each
listed label put in turn. Neither the paper that calibrates on this set nor its peers say how the
wrong answers were made, so this choice is ours.
"""

import re

from shoal.core.errors import UsageError
from shoal.data.items import Choice, ChoiceItem
from shoal.data.rows import Row, text
from shoal.data.tasks.task import Hub, Task

_FORMAT = re.compile(r"Answer format:\s*(\S[^\n]*?)\s*$")


def build_commonsense(row: Row, index: int) -> ChoiceItem:
    """Build an item from `instruction, input, output, answer`."""
    instruction, answer = text(row, "instruction").rstrip(), text(row, "answer").strip()
    found = _FORMAT.search(instruction)
    if found is None:
        raise UsageError('the "instruction" does not end in "Answer format: a/b/...".')
    labels = tuple(label.strip() for label in found[1].split("/"))
    if answer not in labels:
        raise UsageError(f'the answer "{answer}" is not in the answer format {"/".join(labels)}.')
    before, there, after = text(row, "output").strip().rpartition(answer)
    if not there:
        raise UsageError(f'the "output" does not contain the answer "{answer}".')
    extra = str(row.get("input") or "").strip()
    context = "\n".join(filter(None, (instruction, extra))) + "\n\nAnswer:"
    choices = tuple(Choice(context, f" {before}{label}{after}") for label in labels)
    return ChoiceItem(str(index), choices, labels.index(answer))


COMMONSENSE_170K = Task(
    name="commonsense_170k",
    kind="choice",
    description="eight commonsense benchmarks as instructions with a fixed answer sentence",
    licence="as the eight source sets",
    hub=Hub("zwhe99/commonsense_170k"),
    splits=("train", "validation", "test"),
    calibration_splits=("train",),
    report_split="test",
    test_splits=frozenset({"validation", "test"}),
    build=build_commonsense,
    folders=("commonsense_170k", "commonsense"),
    spread=True,
)
