"""A loaded model with its two tasks, whether a language model or one of the lab."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shoal.core.mask import Mask
from shoal.core.plan import ModelRef
from shoal.geometry.collecting import ALL
from shoal.geometry.sides import Side
from shoal.geometry.stack import Batch, Stack, Texts


@dataclass(frozen=True)
class Task:
    """One task, ready to be measured.

    Attributes:
        side: Its sequences and losses.
        surrogate: The sequences that surrogates are fitted on, which are more.
        key: Tells its sequences and losses from others', in the keys of what is kept.
        surrogate_key: The same for the sequences of the surrogates.
        loss_tokens: Positions that run for one pass over the losses.
        described: What it is, for the record.
    """

    side: Side
    surrogate: Texts
    key: str
    surrogate_key: str
    loss_tokens: int
    described: dict[str, Any]

    @property
    def tokens(self) -> int:
        """Positions that run for one pass over the sequences, padding included."""
        return tokens_of(self.side.texts)


@dataclass(frozen=True)
class Subject:
    """What is looked at.

    Attributes:
        ref: Which model.
        key: Tells its weights and dtype from others', in keys.
        stack: The model.
        width: Numbers in a hidden state.
        weight_bytes: Memory of its weights.
        id: The task that it is adapted to.
        ood: The shifted one.
        probe: A few sequences, to time passes on.
        mask: What is removed, or None.
        classes: Classes of positions that get a surrogate each.
        notes: What the user should know of the data.
        settings: How it runs, for the record.
    """

    ref: ModelRef
    key: str
    stack: Stack
    width: int
    weight_bytes: int
    id: Task
    ood: Task
    probe: Batch
    mask: Mask | None
    classes: Mapping[str, slice] = field(default_factory=lambda: ALL)
    notes: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)


def tokens_of(texts: Texts) -> int:
    """Positions of some texts, padding included."""
    return sum(batch.positions.numel() for batch in texts.batches)


def counted_of(texts: Texts) -> int:
    """Positions of some texts whose states count."""
    return sum(int(batch.positions.sum()) for batch in texts.batches)


def fitting_tokens(tokens: int) -> int:
    """Tokens to read for surrogates that are fitted on so many.

    One sequence of three is held out, and a few more are read since their lengths differ.
    """
    return -(-8 * tokens // 5)
