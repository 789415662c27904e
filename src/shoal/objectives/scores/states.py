"""All state scores from one forward pass over the data.

The states are taken at the blocks themselves: what the library calls its last hidden state has
passed the final norm. While a micro-batch runs, each block's input is kept at the positions that
matter and compared with the output of that block and of the later ones,

    window (l, n): entering block l  ->  leaving block l + n - 1       n blocks, from l on

so what is held at any time is at most `longest` + 1 states per position of one micro-batch. Every
token of the data weighs the same; padding is left out. Which tokens there are depends on how items
are laid out: a prompt that its choices share counts once where they share a row, else once each.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from shoal.models.dense import DenseModel
from shoal.models.masked import hidden_of, input_of
from shoal.objectives.base import ExampleBatch, ScoringObjective
from shoal.objectives.scores.base import Ends, StateScore
from shoal.objectives.scores.positions import last_positions, real_positions

Windows = NDArray[np.float64]
"""Scores [longest, depth]: row n - 1 holds the windows of n blocks by their first; NaN beyond."""


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
    sums = {
        name: _Sum(score, dense.depth, dense.depth if score.last else longest)
        for name, score in scores.items()
    }
    groups = [
        _Group([s for s in sums.values() if s.score.last], dense.depth),
        _Group([s for s in sums.values() if not s.score.last], longest),
    ]
    for batch in objective.batches:
        local = ExampleBatch(batch.tokens.to(dense.device), batch.examples, batch.layout)
        groups[0].start(last_positions(local))
        groups[1].start(real_positions(local))
        with _watched(dense, [g for g in groups if g.sums]), torch.inference_mode():
            # The body alone: logits are not wanted here.
            dense.module.base_model(**local.tokens.forward_arguments(dense.dtype))
    return {name: found.mean() for name, found in sums.items()}


class _Sum:
    """Running sums of one score over positions, per window."""

    def __init__(self, score: StateScore, depth: int, longest: int) -> None:
        self.score = score
        self.total = np.full((longest, depth), np.nan)
        for n in range(longest):
            self.total[n, : depth - n] = 0.0
        self.count = 0

    def mean(self) -> Windows:
        return self.total / max(1, self.count)


class _Group:
    """Scores that look at the same positions, and the recent block inputs there."""

    def __init__(self, sums: list[_Sum], longest: int) -> None:
        self.sums = sums
        self._inputs: deque[Tensor] = deque(maxlen=longest)

    def start(self, positions: Tensor) -> None:
        """A micro-batch starts, of which these flat positions count [P]."""
        self._positions = positions
        self._inputs.clear()
        for entry in self.sums:
            entry.count += len(positions)

    def enter(self, hidden: Tensor) -> None:
        """A block receives this state [B, T, d]."""
        self._inputs.append(self._taken(hidden))

    def leave(self, layer: int, hidden: Tensor) -> None:
        """A block returns this state [B, T, d]."""
        output = self._taken(hidden)
        for n, entered in enumerate(reversed(self._inputs)):
            ends = Ends.of(entered, output)
            for entry in self.sums:
                entry.total[n, layer - n] += float(entry.score.rule(ends).sum())

    def _taken(self, hidden: Tensor) -> Tensor:
        return hidden.reshape(-1, hidden.shape[-1])[self._positions.to(hidden.device)]


@contextmanager
def _watched(dense: DenseModel, groups: list[_Group]) -> Iterator[None]:
    """Show every block's input and output to the groups."""

    def before(module: nn.Module, args: Any, kwargs: Any) -> None:
        for group in groups:
            group.enter(input_of(args, kwargs))

    handles = [
        layer.register_forward_pre_hook(before, with_kwargs=True) for layer in dense.blocks.layers
    ]
    for i, layer in enumerate(dense.blocks.layers):

        def after(module: nn.Module, args: Any, output: Any, i: int = i) -> None:
            for group in groups:
                group.leave(i, hidden_of(output))

        handles.append(layer.register_forward_hook(after))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
