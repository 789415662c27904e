"""Comparing many pairs of states at the same positions, each state read once.

The pairs come in the order of the blocks, so a reading is dropped when the last pair that needs it
is done; at most those of one block are held, for as many positions as `HEAD_ELEMENTS` allows.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from shoal.diagnosis.layers.readings import Reading, differ, ratio, read
from shoal.diagnosis.spaces import HEAD_ELEMENTS, Columns, Look, Rows
from shoal.diagnosis.theorems import turn
from shoal.models.head import Head

Pair = tuple[Hashable, Hashable]
"""Names of two states, the dense model's first."""


def compare_pairs(
    rows: Mapping[Hashable, Rows], pairs: Sequence[Pair], look: Look
) -> Iterator[tuple[int, slice, Columns]]:
    """Compare pairs of states, some positions at a time.

    Args:
        rows: Name -> the state at the positions, with a head or with logits.
        pairs: What to compare.
        look: What is looked at.

    Yields:
        Index of the pair, which positions these are, and the quantities of `spaces.compare`
        there; those of the hidden space alone where there is nothing to form logits with.
    """
    last = {name: i for i, pair in enumerate(pairs) for name in pair}
    for here in _wide(next(iter(rows.values()))):
        known: dict[Hashable, Reading] = {}
        for i, (dense, other) in enumerate(pairs):
            found = compare_states(rows[dense], rows[other], here)
            if rows[dense].vocabulary:
                for name in (dense, other):
                    if name not in known:
                        known[name] = read(
                            rows[name].logits(here.start, here.stop), look.temperature
                        )
                found |= differ(known[dense], known[other], look)
                if "hidden_orthogonal" in found:
                    found["attenuation"] = ratio(found, "logit_orthogonal", "hidden_orthogonal")
            known = {name: kept for name, kept in known.items() if last[name] > i}
            yield i, here, found


def joined(parts: Sequence[Columns]) -> Columns:
    """Columns of consecutive positions, put together."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def compare_states(dense: Rows, other: Rows, here: slice) -> Columns:
    """The hidden space; empty where states are unknown or differ in size."""
    if dense.states is None or other.states is None:
        return {}
    x, y = dense.states[here].double(), other.states[here].double()
    if x.shape != y.shape:
        return {}
    found = turn(x, y.to(x.device))
    columns = {
        "hidden_gap": found.gap,
        "hidden_parallel": found.parallel,
        "hidden_orthogonal": found.orthogonal,
        "hidden_estimate": found.estimate,
    }
    return {name: value.cpu().numpy() for name, value in columns.items()}


@torch.no_grad()
def normed(head: Head, state: Tensor) -> Rows:
    """A state [R, d] behind the final norm, as the model's last one."""
    return Rows.of(head.score(state, torch.arange(len(state), device=state.device)))


def raw(head: Head, state: Tensor) -> Rows:
    """A state [R, d] that the output matrix reads as it is; no logits where it cannot."""
    fits = state.shape[-1] == head.weight.shape[1]
    return Rows(state, replace(head, chain=()) if fits else None)


def _wide(rows: Rows) -> Iterator[slice]:
    """So many positions that the output matrix is read seldom, and tables stay bounded."""
    step = max(1, HEAD_ELEMENTS // max(1, rows.vocabulary))
    for start in range(0, len(rows), step):
        yield slice(start, min(start + step, len(rows)))
