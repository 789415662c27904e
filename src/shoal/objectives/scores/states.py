"""All state scores from one forward pass over the data.

The states are taken at the blocks themselves: what the library calls its last hidden state has
passed the final norm. While a micro-batch runs, the state that enters a run is kept at the
positions that matter until the last run from there on has ended,

    window (l, n): entering block l  ->  leaving block l + n - 1       n blocks, from l on
    run (p, n): entering sub-layer p  ->  leaving sub-layer p + n - 1  see `moments`

so what is held at any time is at most `longest` + 1 states per position of one micro-batch. Every
token of the data weighs the same; padding is left out. Which tokens there are depends on how items
are laid out: a prompt that its choices share counts once where they share a row, else once each.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shoal.core.tiling import Span
from shoal.models.branches import BlockBranches
from shoal.models.dense import DenseModel
from shoal.objectives.base import ExampleBatch, ScoringObjective
from shoal.objectives.scores.base import Ends, StateScore
from shoal.objectives.scores.moments import State, between, why_not
from shoal.objectives.scores.positions import last_positions, real_positions
from shoal.objectives.scores.watching import watched

Windows = NDArray[np.float64]
"""Scores [longest, depth]: row n - 1 holds the windows of n blocks by their first; NaN beyond."""

Runs = NDArray[np.float64]
"""Scores [longest, 2 depth]: row n - 1 holds the runs of n sub-layers by their first; NaN where
there is none."""


def state_windows(
    dense: DenseModel,
    objective: ScoringObjective,
    scores: Mapping[str, StateScore],
    longest: int = 1,
) -> dict[str, Windows]:
    """Score windows of blocks.

    Args:
        dense: The model.
        objective: Gives the texts; its losses are not used.
        scores: Name -> score.
        longest: Longest window, in blocks. Scores at last positions get every length up to the
            model's depth, which costs next to nothing.

    Returns:
        Name -> windows.
    """
    depth = dense.depth
    asked = {
        name: _Asked(score, _spans(depth, depth if score.last else longest, 2))
        for name, score in scores.items()
    }
    _take(dense, objective, list(asked.values()), ())
    return {name: entry.table(depth, 2) for name, entry in asked.items()}


def state_runs(
    dense: DenseModel,
    objective: ScoringObjective,
    scores: Mapping[str, StateScore],
    longest: int = 2,
) -> dict[str, Runs]:
    """Score runs of neighbouring sub-layers; runs of whole blocks score as their windows do.

    Args:
        dense: The model.
        objective: Gives the texts; its losses are not used.
        scores: Name -> score.
        longest: Longest run, in sub-layers.

    Returns:
        Name -> runs.

    Raises:
        UnsupportedModelError: If the branches of the model's blocks cannot be told.
    """
    branches, places = dense.branches, 2 * dense.depth
    spans = [s for s in _spans(places, longest, 1) if why_not(s, branches) is None]
    asked = {name: _Asked(score, spans) for name, score in scores.items()}
    _take(dense, objective, list(asked.values()), branches)
    return {name: entry.table(places, 1, longest) for name, entry in asked.items()}


def _spans(count: int, longest: int, width: int) -> list[Span]:
    """The runs of up to `longest` among `count` things that are `width` places wide."""
    return [
        (width * first, width * (first + n))
        for n in range(1, longest + 1)
        for first in range(count - n + 1)
    ]


class _Asked:
    """Running sums of one score over positions, per run."""

    def __init__(self, score: StateScore, spans: Sequence[Span]) -> None:
        self.score, self.spans = score, spans
        self.total = np.zeros(len(spans))
        self.count = 0

    def table(self, columns: int, width: int, rows: int | None = None) -> NDArray[np.float64]:
        """Means by length and first place, both in things that are `width` places wide."""
        lengths = [(stop - start) // width for start, stop in self.spans]
        table = np.full((rows or max(lengths), columns), np.nan)
        firsts = [start // width for start, _ in self.spans]
        table[np.array(lengths) - 1, firsts] = self.total / max(1, self.count)
        return table


def _take(
    dense: DenseModel,
    objective: ScoringObjective,
    asked: Sequence[_Asked],
    branches: Sequence[BlockBranches],
) -> None:
    """Run the data once and sum up what is asked."""
    at_last = _Group([a for a in asked if a.score.last], branches)
    at_all = _Group([a for a in asked if not a.score.last], branches)

    def show(state: State, hidden: Tensor) -> None:
        at_last.show(state, hidden)
        at_all.show(state, hidden)

    with watched(dense, at_last.wanted | at_all.wanted, show), torch.inference_mode():
        for batch in objective.batches:
            local = ExampleBatch(batch.tokens.to(dense.device), batch.examples, batch.layout)
            at_last.start(last_positions(local))
            at_all.start(real_positions(local))
            # The body alone: logits are not wanted here.
            dense.module.base_model(**local.tokens.forward_arguments(dense.dtype))


class _Group:
    """Scores that look at the same positions and runs, and the states there that still matter."""

    def __init__(self, asked: Sequence[_Asked], branches: Sequence[BlockBranches]) -> None:
        self.asked = asked
        self._held: dict[State, Tensor] = {}
        self._ending: dict[State, list[tuple[int, State]]] = {}
        self._until: dict[State, State] = {}
        for i, span in enumerate(asked[0].spans if asked else ()):
            entry, end = between(span, branches)
            self._ending.setdefault(end, []).append((i, entry))
            self._until[entry] = max(end, self._until.get(entry, end))

    @property
    def wanted(self) -> frozenset[State]:
        """The states that runs begin or end at."""
        return frozenset(self._ending) | frozenset(self._until)

    def start(self, positions: Tensor) -> None:
        """A micro-batch starts, of which these flat positions count [P]."""
        self._positions = positions
        self._held.clear()
        for entry in self.asked:
            entry.count += len(positions)

    def show(self, state: State, hidden: Tensor) -> None:
        """The forward pass is at this state [B, T, d]."""
        ending = self._ending.get(state, ())
        if not ending and state not in self._until:
            return
        taken = hidden.reshape(-1, hidden.shape[-1])[self._positions.to(hidden.device)]
        for i, entry in ending:
            ends = Ends.of(self._held[entry].to(taken.device), taken)
            for asked in self.asked:
                asked.total[i] += float(asked.score.rule(ends).sum())
            if self._until[entry] == state:
                del self._held[entry]
        if state in self._until:
            self._held[state] = taken
