"""Multiple choice by the texts of the options, as benchmarks score it: summed log-likelihoods.

With l the log-likelihoods of an item's options, p_C = softmax(l) is a model's law of the text given
that it is one of the options. What holds for answer tokens then holds for whole answers: the
divergence within them is about Var(Dl) / 2 (T3), and that of the laws of texts is at least

    mass KL(p_C || q_C),   mass = sum exp l    (chain rule)

The mass is that of what begins with an option: where one option begins another, the longer counts
twice, and the chain rule does not apply. Benchmarks score at temperature 1, so these do.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shoal.core.errors import NotFiniteError
from shoal.data import ChoiceSet, EncodedItem, Tokenisation, encode_choices
from shoal.diagnosis.choice.letters import Answers, by_letters, why_not_by_letter
from shoal.diagnosis.passages import Progress, check_finite, lay
from shoal.diagnosis.records import Options
from shoal.diagnosis.sides import Side, scorers
from shoal.diagnosis.spaces import Columns, Look, Rows, compare
from shoal.diagnosis.theorems import divergence, turn, variance
from shoal.models.discover import max_positions
from shoal.objectives.base import ExampleBatch
from shoal.objectives.choice import Accuracy
from shoal.objectives.choice_batches import choice_batches
from shoal.objectives.packing import packing_agrees

log = logging.getLogger(__name__)


def choose(
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
) -> tuple[Options, ...]:
    """Compare two models on a task by the texts of its options, and by their letters.

    Args:
        dense: The dense model; its tokenizer is used.
        other: The other.
        data: The items.
        tokenisation: The policy for special tokens.
        batch_tokens: Largest number of positions that run together.
        chat: Whether letters are asked for in a chat; options are always texts.
        temperature: Temperature of the distributions.
        seed: Seed of the bootstrap.
        on_step: Hears how many items have had their options scored, which is most of the work.

    Returns:
        Results by options, then by letters unless `why_not_by_letter` has a reason.

    Raises:
        UsageError: If there are no items, or one does not fit the models.
        NotFiniteError: If the models' outputs are not finite.
    """
    common: dict[str, Any] = {
        "tokenisation": tokenisation,
        "batch_tokens": batch_tokens,
        "temperature": temperature,
        "seed": seed,
    }
    found = [by_options(dense, other, data, on_step=on_step, **common)]
    reason = why_not_by_letter(data, dense.model, tokenisation, chat=chat)
    if reason is None:
        found.append(by_letters(dense, other, data, chat=chat, **common))
    else:
        log.warning("%s is scored by its options alone: %s", data.name, reason)
    return tuple(found)


def by_options(
    dense: Side,
    other: Side,
    data: ChoiceSet,
    *,
    tokenisation: Tokenisation,
    batch_tokens: int,
    temperature: float = 1.0,
    seed: int = 0,
    on_step: Progress | None = None,
) -> Options:
    """Compare two models on a task by the log-likelihoods of its options.

    Args:
        dense: The dense model; its tokenizer is used.
        other: The other.
        data: The items.
        tokenisation: The policy for special tokens.
        batch_tokens: Largest number of positions that run together.
        temperature: Temperature of the distributions over the whole vocabulary.
        seed: Seed of the bootstrap.
        on_step: Hears how many items were scored.

    Raises:
        UsageError: If there are no items, or one does not fit the models.
        NotFiniteError: If log-likelihoods are not finite.
    """
    sides, answers = (dense, other), Answers.to(data)
    items = _encoded(sides, data, tokenisation)
    # A mask runs the dense model's own blocks, so that it is packed as the dense model is.
    runs = {id(side.runner): side.model for side in reversed(sides)}
    packed = all(packing_agrees(model, items, batch_tokens) for model in runs.values())
    shape = (len(items), max(len(item.choices) for item in items))
    for batch in choice_batches(items, batch_tokens, packed=packed):
        found = scorers(sides, batch.tokens)
        scores = [
            Accuracy()
            .choice_scores(scorer, replace(batch, tokens=batch.tokens.to(side.model.device)))
            .cpu()
            for side, scorer in zip(sides, found, strict=True)
        ]
        examples = np.asarray(batch.examples)
        present = batch.layout.present
        for side, values in zip(sides, scores, strict=True):
            _check_scores(values[present], side)
        answers.chosen[:, examples] = torch.stack(scores).argmax(-1).numpy()
        inside = within(scores[0], scores[1], present)
        lay(answers.inside, inside, (examples, np.zeros_like(examples)), (len(items), 1))
        starts, where = _starts(batch, items)
        mine, theirs = (Rows.of(scorer).at(starts) for scorer in found)
        columns = compare(mine, theirs, Look(temperature))
        check_finite(columns)
        lay(answers.vocabulary, columns, where, shape)
        if on_step is not None:
            on_step(len(batch.examples))
    return answers.record(data, "options", seed)


def within(scores: Tensor, moved: Tensor, present: Tensor) -> Columns:
    """Quantities over the options of items, from their log-likelihoods.

    Log-likelihoods of texts are far from zero, and so the cosine of these, which is that of the
    values themselves, is near one.

    Args:
        scores: Under the dense model, minus infinity where there is no option [items, options].
        moved: Under the other model.
        present: Whether there is such an option.
    """
    log_p, log_q = scores.log_softmax(-1), moved.log_softmax(-1)
    x, y = scores.masked_fill(~present, 0.0), moved.masked_fill(~present, 0.0)
    mass, kl = scores.exp().sum(-1), divergence(log_p, log_q)
    found = {
        "subspace_mass": mass,
        "subspace_logit_gap": turn(x, y).gap,
        "subspace_gap": turn(log_p.exp(), log_q.exp()).gap,
        "subspace_kl": kl,
        "subspace_kl_estimate": variance(log_p.exp(), y - x) / 2,
        "subspace_floor": mass * kl,
        "subspace_flip": (scores.argmax(-1) != moved.argmax(-1)).double(),
    }
    return {name: value.numpy() for name, value in found.items()}


def _encoded(
    sides: Sequence[Side], data: ChoiceSet, tokenisation: Tokenisation
) -> tuple[EncodedItem, ...]:
    """Items that fit both models."""
    known = [max_positions(side.model.config) for side in sides]
    longest = min((p for p in known if p is not None), default=None)
    tokenizer = sides[0].model.require_tokenizer()
    return encode_choices(data, tokenizer, tokenisation, max_length=longest)


def _starts(
    batch: ExampleBatch, items: Sequence[EncodedItem]
) -> tuple[Tensor, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Rows that predict the first token of an answer, one for each context of an item.

    Returns:
        The rows; their items; and their numbers among those of the item.
    """
    # The scored tokens of a segment are in order, whatever the order of the segments.
    first = np.unique(batch.tokens.segment.numpy(), return_index=True)[1]
    rows, examples, numbers = [], [], []
    for place, example in enumerate(batch.examples):
        choices = items[example].choices
        contexts = [choice.tokens[: -choice.scored] for choice in choices]
        for number, context in enumerate(dict.fromkeys(contexts)):
            segment = int(batch.layout.segment[place, contexts.index(context)])
            rows.append(int(batch.tokens.pick[first[segment]]))
            examples.append(example)
            numbers.append(number)
    return torch.tensor(rows), (np.asarray(examples), np.asarray(numbers))


def _check_scores(scores: Tensor, side: Side) -> None:
    if not scores.isfinite().all():
        raise NotFiniteError(
            f"{int((~scores.isfinite()).sum())} of {len(scores)} options have no finite "
            f"log-likelihood under the {side.name} model. Look for NaN or infinite weights, or try "
            "--dtype float32."
        )
