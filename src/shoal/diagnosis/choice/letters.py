"""Multiple choice by the letters of the options.

By letter an answer is a single token, so that the options are a subspace of the vocabulary:
He et al. 2026 (2603.24652) look at nothing else, while benchmarks mostly score the options' texts.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from shoal.core.errors import UsageError
from shoal.core.means import known_mean, means
from shoal.data import ChoiceSet, EncodedText, Tokenisation
from shoal.diagnosis.choice.candidates import letter_tokens
from shoal.diagnosis.passages import Progress, Table, check_finite, lay
from shoal.diagnosis.quantities import QUANTITIES
from shoal.diagnosis.records import Options
from shoal.diagnosis.sides import Side, together
from shoal.diagnosis.spaces import TABLE_ELEMENTS, Look, Rows, compare
from shoal.models.dense import DenseModel
from shoal.objectives.base import ExampleBatch
from shoal.objectives.prompts import encode_prompts, lettered
from shoal.objectives.text_batches import text_batches


@dataclass(frozen=True)
class Answers:
    """What both models answer to each item, filled in batch by batch.

    Attributes:
        chosen: Option that the dense and the other model choose [2, items].
        inside: Quantities over an item's options [items, 1].
        vocabulary: Quantities over the whole vocabulary where an answer begins; an item has as many
            such places as its options have contexts [items, places].
    """

    chosen: NDArray[np.int64]
    inside: dict[str, Table]
    vocabulary: dict[str, Table]

    @classmethod
    def to(cls, data: ChoiceSet) -> "Answers":
        """Answers to some items, still empty.

        Raises:
            UsageError: If there are no items.
        """
        if not len(data):
            raise UsageError(f"{data.name} has no items to answer.")
        return cls(np.full((2, len(data)), -1), {}, {})

    def record(self, data: ChoiceSet, scoring: str, seed: int) -> Options:
        """Sum them up; items are what is resampled."""
        right = (self.chosen == [item.gold for item in data.items]).astype(float)
        kept = (self.chosen[0] == self.chosen[1]).astype(float)
        return Options(
            task=data.name,
            split=data.split,
            scoring=scoring,
            items=len(data),
            accuracy_dense=known_mean(right[0], seed),
            accuracy_other=known_mean(right[1], seed),
            accuracy_change=known_mean(right[1] - right[0], seed),
            kept=known_mean(kept, seed),
            inside=means(self.inside, seed),
            vocabulary=means(self.vocabulary, seed),
        )


@dataclass(frozen=True)
class Asked:
    """An item as a question to be answered by letter.

    Attributes:
        text: The question and the right letter, which alone is scored.
        letters: The tokens of the letters, one per option.
    """

    text: EncodedText
    letters: tuple[int, ...]


def why_not_by_letter(
    data: ChoiceSet, dense: DenseModel, tokenisation: Tokenisation, *, chat: bool = False
) -> str | None:
    """Why the items of a task cannot be asked by letter; None where they can."""
    try:
        ask(data, dense, tokenisation, chat=chat)
    except UsageError as error:
        return str(error)
    return None


def ask(
    data: ChoiceSet, dense: DenseModel, tokenisation: Tokenisation, *, chat: bool = False
) -> list[Asked]:
    """The items of a task as questions that are answered by letter.

    In a chat the answer is a turn of its own, which begins without a space.

    Raises:
        UsageError: If choices have different contexts or are too many, letters are not single
            tokens, or a question is too long for the model.
    """
    tokenizer = dense.require_tokenizer()
    questions = [lettered(item) for item in data.items]
    # The right letter and one more, since the letter is read as well.
    prompts = encode_prompts(questions, dense, tokenisation, new_tokens=2, chat=chat)
    asked = []
    for item, question, prompt in zip(data.items, questions, prompts, strict=True):
        letters = letter_tokens(tokenizer, len(item.choices), question.prompt, spaced=not chat)
        asked.append(Asked(EncodedText((*prompt, letters[item.gold]), 1), letters))
    return asked


def by_letters(
    dense: Side,
    other: Side,
    data: ChoiceSet,
    *,
    tokenisation: Tokenisation,
    batch_tokens: int,
    chat: bool = False,
    temperature: float = 1.0,
    seed: int = 0,
    on_step: Progress | None = None,
) -> Options:
    """Compare what two models say next to a question whose options have letters.

    Args:
        dense: The dense model; its tokenizer is used.
        other: The other.
        data: The items.
        tokenisation: The policy for special tokens.
        batch_tokens: Largest number of positions that run together.
        chat: Whether a question is what a user says in a chat.
        temperature: Temperature of the distributions.
        seed: Seed of the bootstrap.
        on_step: Hears how many items were asked.

    Raises:
        UsageError: If the task cannot be asked by letter.
        NotFiniteError: If the models' logits are not finite.
    """
    answers = Answers.to(data)
    asked = ask(data, dense.model, tokenisation, chat=chat)
    for batch in text_batches([a.text for a in asked], batch_tokens):
        both = together((dense, other), batch.tokens)
        for letters, places in _by_letters(batch, asked):
            pair = [rows.at(torch.from_numpy(places)) for rows in both]
            columns = compare(pair[0], pair[1], Look(temperature, letters))
            check_finite(columns)
            examples = np.asarray(batch.examples)[places]
            answers.chosen[:, examples] = [_likeliest(rows, letters) for rows in pair]
            for name, values in columns.items():
                inside = QUANTITIES[name].space == "subspace"
                tables = answers.inside if inside else answers.vocabulary
                where = (examples, np.zeros_like(examples))
                lay(tables, {name: values}, where, (len(asked), 1))
        if on_step is not None:
            on_step(len(batch.examples))
    return answers.record(data, "letters", seed)


def _by_letters(
    batch: ExampleBatch, asked: list[Asked]
) -> Iterator[tuple[tuple[int, ...], NDArray[np.int64]]]:
    """The rows of a batch, which are one per item, by the letters of their items."""
    letters = [asked[example].letters for example in batch.examples]
    for wanted in dict.fromkeys(letters):
        yield wanted, np.asarray([i for i, some in enumerate(letters) if some == wanted])


def _likeliest(rows: Rows, letters: tuple[int, ...]) -> NDArray[np.int64]:
    """Place of the likeliest letter in each row [R]."""
    step, wanted = max(1, TABLE_ELEMENTS // rows.vocabulary), list(letters)
    starts = range(0, len(rows), step)
    parts = [rows.logits(s, min(s + step, len(rows)))[:, wanted].argmax(1).cpu() for s in starts]
    found: NDArray[np.int64] = torch.cat(parts).numpy()
    return found
