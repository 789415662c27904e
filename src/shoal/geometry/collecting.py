"""Moments of what blocks take and add, over the texts of one task, with sequences held out.

Positions fall into classes that get a surrogate each: where attention mixes positions of two kinds,
as the x and y tokens of the lab, one linear map does not describe both.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import numpy as np
import torch
from numpy.typing import NDArray

from shoal.core.errors import UsageError
from shoal.geometry.moments import KEEP, Moments
from shoal.geometry.stack import Batch, Stack, Texts, states

Classes = Mapping[str, slice]
"""Name -> the positions of a class."""

ALL: Classes = MappingProxyType({"all": slice(None)})

HELD = 3
"""One of so many sequences is held out."""

Key = tuple[int, str]
"""A block and a class of positions."""


def held_out(count: int, seed: int = 0) -> NDArray[np.bool_]:
    """Which sequences are held out [count]: a random third, at least one.

    Args:
        count: Sequences.
        seed: Seed of the choice.

    Raises:
        UsageError: If there are fewer than two sequences.
    """
    if count < 2:
        raise UsageError(
            f"a linear surrogate needs sequences to fit and others to be judged on, got {count}. "
            "Give at least 2."
        )
    held = np.zeros(count, bool)
    held[np.random.default_rng(seed).permutation(count)[: max(1, count // HELD)]] = True
    return held


def sequences(texts: Texts) -> int:
    """How many sequences there are."""
    return sum(len(batch.last) for batch in texts.batches)


def collected(
    stack: Stack, texts: Texts, layers: Iterable[int], classes: Classes, seed: int = 0
) -> dict[Key, tuple[Moments, Moments]]:
    """One pass over the texts, with whatever interventions are in place.

    Args:
        stack: The model.
        texts: Its inputs.
        layers: Blocks wanted.
        classes: Classes of positions wanted.
        seed: Chooses the sequences that are held out.

    Returns:
        Moments of each block and class, of the sequences to fit and of those held out.

    Raises:
        UsageError: If there are fewer than two sequences.
    """
    held = torch.from_numpy(held_out(sequences(texts), seed))
    wanted = [(layer, name) for layer in layers for name in classes]
    deepest = max(layer for layer, _ in wanted) + 1
    found: dict[Key, tuple[Moments, Moments]] = {}
    first = 0
    for batch in texts.batches:
        rows = held[first : first + len(batch.last)]
        first += len(rows)
        hidden = states(stack, batch, deepest)
        for layer, name in wanted:
            before, after = hidden[layer], hidden[layer + 1]
            if (layer, name) not in found:
                found[layer, name] = _empty(before, seed), _empty(before, seed)
            for moments, here in zip(found[layer, name], (~rows, rows), strict=True):
                places = _places(batch, classes[name], here)
                moments.add(before[places], after[places])
    return found


def _empty(hidden: torch.Tensor, seed: int) -> Moments:
    # Sums are in float64, which not every kind of accelerator has.
    device = hidden.device if hidden.is_cuda else torch.device("cpu")
    return Moments(hidden.shape[-1], seed, device=device)


def _places(batch: Batch, positions: slice, rows: torch.Tensor) -> torch.Tensor:
    """Counted positions of one class in some sequences, bool [B, T]."""
    chosen = torch.zeros_like(batch.positions)
    chosen[:, positions] = True
    return batch.positions & chosen & rows.to(chosen.device)[:, None]


def moments_bytes(depth: int, width: int, classes: int) -> int:
    """Memory for the moments of all blocks at once.

    Args:
        depth: Blocks.
        width: Of the hidden state.
        classes: Classes of positions.
    """
    sums, kept = 2 * width**2 * 8, 2 * KEEP * width * 4
    return 2 * depth * classes * (sums + kept)
