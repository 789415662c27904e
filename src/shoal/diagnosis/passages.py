"""Prompts with what a model wrote after them, and two models compared along them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from shoal.core.errors import NotFiniteError
from shoal.data.encode import EncodedText
from shoal.diagnosis.logit_pairs import log_total
from shoal.diagnosis.sides import Side, together
from shoal.diagnosis.spaces import HEAD_ELEMENTS, Columns, Look, Rows, see
from shoal.objectives.base import ExampleBatch
from shoal.objectives.text_batches import text_batches

Table = NDArray[np.float64]
"""A quantity of each step of each passage [passages, steps]; NaN beyond a passage's end."""

Progress = Callable[[int], None]
"""Called after each piece of work with the positions that it held."""


@dataclass(frozen=True)
class Passage:
    """A prompt and its continuation, as tokens; at least one token each.

    Attributes:
        prompt: What was given.
        written: What a model wrote.
    """

    prompt: tuple[int, ...]
    written: tuple[int, ...]

    def __post_init__(self) -> None:
        if not (self.prompt and self.written):
            raise ValueError("a passage needs a token before what was written, and one written")


@dataclass(frozen=True)
class Along:
    """Two models compared at every written token of some passages.

    Attributes:
        quantities: Name -> table; the names are those of `quantities`.
        temperatures: Temperature -> the quantities that depend on it.
        dense_nll: Negative log-likelihood of each written token under the dense model, in nats.
        other_nll: The same under the other model.
    """

    quantities: dict[str, Table]
    temperatures: dict[float, dict[str, Table]]
    dense_nll: Table
    other_nll: Table


def passage_batches(passages: Sequence[Passage], batch_tokens: int) -> list[ExampleBatch]:
    """Micro-batches in which every written token is scored, one segment per passage."""
    texts = [EncodedText((*p.prompt, *p.written), len(p.written)) for p in passages]
    return text_batches(texts, batch_tokens)


def compare_along(
    dense: Side,
    other: Side,
    passages: Sequence[Passage],
    look: Look,
    *,
    temperatures: Sequence[float] = (),
    batch_tokens: int = 2048,
    on_step: Progress | None = None,
) -> Along:
    """Let both models read the same text and compare what they say of each written token.

    Args:
        dense: The dense model.
        other: The other.
        passages: The texts.
        look: What is looked at.
        temperatures: Also compare distributions at these.
        batch_tokens: Largest number of positions that run together.
        on_step: Hears of the progress.

    Raises:
        NotFiniteError: If a model's logits are not finite.
        ValueError: If there are no passages, or the vocabularies differ.
    """
    if not passages:
        raise ValueError("there is nothing to compare the models along: no passages")
    shape = (len(passages), max(len(p.written) for p in passages))
    quantities: dict[str, Table] = {}
    swept: dict[float, dict[str, Table]] = {t: {} for t in temperatures}
    nll = [np.full(shape, np.nan), np.full(shape, np.nan)]
    for batch in passage_batches(passages, batch_tokens):
        mine, theirs = together((dense, other), batch.tokens)
        places = row_places(batch)
        seen = see(mine, theirs, look, temperatures, batch.tokens.targets)
        check_finite(seen.quantities)
        lay(quantities, seen.quantities, places, shape)
        for t, found in seen.temperatures.items():
            lay(swept[t], found, places, shape)
        nll[0][places], nll[1][places] = seen.dense_nll, seen.other_nll
        if on_step is not None:
            on_step(len(batch.tokens.rows))
    return Along(quantities, swept, *nll)


def row_places(batch: ExampleBatch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Passage and step of each row of a micro-batch of passages."""
    segment = batch.tokens.segment.numpy()
    first = np.searchsorted(segment, segment)
    return np.asarray(batch.examples)[segment], np.arange(len(segment)) - first


def lay(
    tables: dict[str, Table],
    columns: Columns,
    places: tuple[NDArray[np.int64], NDArray[np.int64]],
    shape: tuple[int, int],
) -> None:
    """Write columns of rows into tables of passages and steps, which are made where missing."""
    for name, values in columns.items():
        tables.setdefault(name, np.full(shape, np.nan))[places] = values


def token_nll(rows: Rows, targets: Tensor) -> NDArray[np.float64]:
    """Negative log-likelihood of one token per row, in nats."""
    step = max(1, HEAD_ELEMENTS // rows.vocabulary)
    parts = []
    for start in range(0, len(rows), step):
        z = rows.logits(start, min(start + step, len(rows))).double()
        here = targets[start : start + step, None].to(z.device)
        parts.append((log_total(z) - z.gather(1, here)[:, 0]).cpu().numpy())
    return np.concatenate(parts) if parts else np.zeros(0)


def check_finite(columns: Columns) -> None:
    """Refuse to go on where nothing can be compared.

    Raises:
        NotFiniteError: If a divergence is not a number: then logits were not.
    """
    if np.isnan(columns["kl"]).any():
        raise NotFiniteError(
            f"logits are not finite at {int(np.isnan(columns['kl']).sum())} of "
            f"{len(columns['kl'])} positions, so the models cannot be compared. Look for NaN or "
            "infinite weights, or for tokens that only one of the models rules out, or try "
            "--dtype float32."
        )
