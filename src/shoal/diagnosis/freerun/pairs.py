"""Two models' own texts after the same prompts, compared step by step.

At a step both models say what comes next, the dense one along its text and the other along its own.
Up to the first different token, that step included, the two contexts are one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import torch
from numpy.typing import NDArray

from shoal.diagnosis.freerun.writing import Tokens
from shoal.diagnosis.passages import (
    Passage,
    Table,
    check_finite,
    lay,
    passage_batches,
    row_places,
    token_nll,
)
from shoal.diagnosis.sides import Side, together
from shoal.diagnosis.spaces import Look, Rows, compare
from shoal.objectives.base import ExampleBatch

ALIKE = 0.75
"""Shortest text that is read together with another, over the other: the rest would be padding."""


@dataclass(frozen=True)
class Pair:
    """Two texts after each prompt. Tables are [prompts, new_tokens]; NaN where there is no step.

    Attributes:
        mine: The dense model's texts.
        theirs: The other's.
        first: Step of the first different token of each prompt, from 1 [prompts].
        quantities: Name -> table over the steps that both texts have; names as in `quantities`.
        mine_nll: Negative log-likelihood of the dense model's tokens under itself, in nats.
        theirs_nll: That of the other's tokens under the dense model.
    """

    mine: Sequence[Tokens]
    theirs: Sequence[Tokens]
    first: NDArray[np.int64]
    quantities: dict[str, Table]
    mine_nll: Table
    theirs_nll: Table

    def part(self, table: Table, *, after: bool) -> Table:
        """A table up to the first different token, that step included, or beyond it."""
        beyond = np.arange(1, table.shape[1] + 1) > self.first[:, None]
        return np.where(beyond == after, table, np.nan)

    def diverged(self) -> Table:
        """1 from the first different token on, also behind the end of a text, and 0 before."""
        steps = np.arange(1, self.mine_nll.shape[1] + 1)
        return (steps >= self.first[:, None]).astype(np.float64) * self._different()

    def _different(self) -> Table:
        """1 for prompts whose texts differ at all [prompts, 1]."""
        pairs = zip(self.mine, self.theirs, strict=True)
        return np.array([[float(a != b)] for a, b in pairs])


def first_difference(mine: Tokens, theirs: Tokens) -> int:
    """Step of the first different token, from 1; one more than the length of equal texts.

    An EOS is a token, so where one text ends and the other goes on they differ.
    """
    pairs = enumerate(zip_longest(mine, theirs), start=1)
    return next((step for step, (a, b) in pairs if a != b), len(mine) + 1)


def flip_rate(mine: Tokens, theirs: Tokens) -> float:
    """Share of steps with different tokens, over the longer text; a missing token is different."""
    flips = [a != b for a, b in zip_longest(mine, theirs)]
    return sum(flips) / len(flips)


def read_pair(
    dense: Side,
    other: Side,
    prompts: Sequence[Tokens],
    mine: Sequence[Tokens],
    theirs: Sequence[Tokens],
    look: Look,
    *,
    new_tokens: int,
    batch_tokens: int,
    on_step: Callable[[int], None] | None = None,
) -> Pair:
    """Let each model read its own text, and the dense one also the other's.

    Args:
        dense: The dense model.
        other: The other.
        prompts: The prompts.
        mine: What the dense model wrote after each.
        theirs: What the other wrote.
        look: What is looked at.
        new_tokens: Most tokens of a text.
        batch_tokens: Most positions of one of the texts that run together.
        on_step: Called after each micro-batch with the most steps that it could have held.

    Raises:
        NotFiniteError: If logits are not finite.
    """
    shape = (len(prompts), new_tokens)
    quantities: dict[str, Table] = {}
    nll = [np.full(shape, np.nan), np.full(shape, np.nan)]
    pair = Pair(
        mine,
        theirs,
        np.array([first_difference(a, b) for a, b in zip(mine, theirs, strict=True)]),
        quantities,
        *nll,
    )
    for group in _groups(prompts, mine, theirs, batch_tokens):
        ours = _batch(prompts, mine, group)
        others = _batch(prompts, theirs, group)
        along_theirs, answers = together((dense, other), others.tokens)
        same = all(mine[i] == theirs[i] for i in group)
        along_mine = along_theirs if same else dense.rows(ours.tokens)
        columns = ((along_mine, ours, pair.mine_nll), (along_theirs, others, pair.theirs_nll))
        for rows, batch, table in columns:
            places, steps = row_places(batch)
            table[np.asarray(group)[places], steps] = token_nll(rows, batch.tokens.targets)
        _compare(along_mine, ours, answers, others, group, look, quantities, shape)
        if on_step is not None:
            on_step(len(group) * new_tokens)
    return pair


def _compare(
    mine: Rows,
    ours: ExampleBatch,
    theirs: Rows,
    others: ExampleBatch,
    group: Sequence[int],
    look: Look,
    quantities: dict[str, Table],
    shape: tuple[int, int],
) -> None:
    """Compare the steps that both texts of a group have, and write them into the tables."""
    here, there = (_row_of(batch, len(group), shape[1]) for batch in (ours, others))
    members, steps = np.nonzero((here >= 0) & (there >= 0))
    places = (np.asarray(group)[members], steps)
    columns = compare(
        mine.at(torch.from_numpy(here[members, steps])),
        theirs.at(torch.from_numpy(there[members, steps])),
        look,
    )
    check_finite(columns)
    lay(quantities, columns, places, shape)


def _row_of(batch: ExampleBatch, members: int, steps: int) -> NDArray[np.int64]:
    """Row of each step of each text [members, steps]; -1 where there is none."""
    table = np.full((members, steps), -1)
    places = row_places(batch)
    table[places] = np.arange(len(places[0]))
    return table


def _batch(
    prompts: Sequence[Tokens], texts: Sequence[Tokens], group: Sequence[int]
) -> ExampleBatch:
    """The texts of a group of prompts, in one micro-batch."""
    passages = [Passage(prompts[i], texts[i]) for i in group]
    widest = max(len(p.prompt) + len(p.written) for p in passages)
    (batch,) = passage_batches(passages, len(group) * widest)
    return batch


def _groups(
    prompts: Sequence[Tokens], mine: Sequence[Tokens], theirs: Sequence[Tokens], batch_tokens: int
) -> Iterator[list[int]]:
    """Prompts that are read together; those with one text twice are read once, by themselves."""
    length = [len(p) + max(len(a), len(b)) for p, a, b in zip(prompts, mine, theirs, strict=True)]
    for same in (True, False):
        order = [i for i in range(len(prompts)) if (mine[i] == theirs[i]) == same]
        order.sort(key=lambda i: (-length[i], i))
        while order:
            longest = length[order[0]]
            alike = sum(length[i] >= ALIKE * longest for i in order)
            count = min(max(1, batch_tokens // longest), alike)
            yield order[:count]
            order = order[count:]
