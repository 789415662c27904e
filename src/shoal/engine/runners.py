"""The two ways to run a set of masks over one micro-batch: replayed blocks, or the whole model."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from shoal.core.mask import Mask
from shoal.engine.states import StateCache
from shoal.engine.trie import naive_passes, passes, visits
from shoal.models.batch import TokenBatch
from shoal.models.dense import DenseModel
from shoal.models.head import Head, LogitScorer, Scorer
from shoal.models.masked import Masking, muted, skipped
from shoal.models.replay import Replay
from shoal.models.sublayers import needed


@dataclass
class Passes:
    """How much work was done, in block passes over one micro-batch.

    Attributes:
        blocks: Block passes done; an attention or an MLP alone is half a pass.
        naive: Block passes that one forward per mask would have done.
        heads: Head passes done.
    """

    blocks: float = 0
    naive: float = 0
    heads: int = 0

    def add(self, blocks: float, naive: float) -> None:
        """Note the block passes of one mask on one micro-batch, and its head pass."""
        self.blocks += blocks
        self.naive += naive
        self.heads += 1

    def __add__(self, other: "Passes") -> "Passes":
        names = [f.name for f in fields(self)]
        return Passes(**{n: getattr(self, n) + getattr(other, n) for n in names})


class Runner(Protocol):
    """Runs masks over a micro-batch and yields, for each, what scores its rows."""

    name: str
    passes: Passes

    def run(
        self, index: int | None, batch: TokenBatch, masks: Sequence[Mask]
    ) -> Iterator[tuple[Mask, Scorer]]:
        """Run distinct masks, in an order of the runner's own.

        Args:
            index: Which micro-batch this is; states are kept under it. None keeps nothing.
            batch: The micro-batch, on the model's device.
            masks: The masks.
        """
        ...


class ReplayRunner:
    """Re-runs single blocks from shared hidden states.

    Args:
        dense: The model.
        head: Its head.
        cache_bytes: Memory for states kept between sets of masks, per micro-batch.
    """

    name = "replay"

    def __init__(self, dense: DenseModel, head: Head, cache_bytes: int = 0) -> None:
        self.dense, self.head = dense, head
        self.replay = Replay(dense)
        self.passes = Passes()
        self._cache_bytes = cache_bytes
        self._caches: dict[int, StateCache] = {}

    def run(
        self, index: int | None, batch: TokenBatch, masks: Sequence[Mask]
    ) -> Iterator[tuple[Mask, Scorer]]:
        """Run distinct masks depth first over their trie."""
        cache = StateCache(0)
        if index is not None:
            cache = self._caches.setdefault(index, StateCache(self._cache_bytes))
        cache.next_round()
        captured = self.replay.capture(batch)
        if not self.replay.returns_tensors(batch):
            self.passes.blocks += self.dense.depth
        waiting: dict[int, Tensor] = {0: captured.entry}
        whole = all(mask.whole_blocks_only for mask in masks)
        for visit in visits(masks, frozenset() if whole else self.replay.unhalved):
            path = visit.path
            start = max((place for place, state in enumerate(path) if state in waiting), default=0)
            hidden = waiting[path[start]]
            kept = cache.deepest(path)
            if kept is not None and kept[0] > start:
                start, hidden = kept
            waiting = {s: h for s, h in waiting.items() if s in visit.keep}
            ahead = visit.steps[start:]
            done = sum(map(passes, (site for _, site in ahead)))
            self.passes.add(done, sum(map(passes, (site for _, site in visit.steps))))
            if path[start] in visit.keep:
                waiting[path[start]] = hidden
            for state, site in ahead:
                hidden = self.replay.run(site, hidden, captured)
                if state != path[-1]:
                    cache.offer(state, hidden)
                if state in visit.keep:
                    waiting[state] = hidden
            waiting[0] = captured.entry
            yield visit.mask, self.head.score(hidden, batch.rows)


class WholeRunner:
    """Runs the model's own forward once per mask: slower, and right for every architecture.

    Args:
        dense: The model.
        plain: Whether all blocks return a plain tensor, so that removed ones need not run.
    """

    name = "whole"

    def __init__(self, dense: DenseModel, plain: bool) -> None:
        self.dense = dense
        self.passes = Passes()
        self._masking: Masking = skipped if plain else muted

    def run(
        self, index: int | None, batch: TokenBatch, masks: Sequence[Mask]
    ) -> Iterator[tuple[Mask, Scorer]]:
        """Run masks one after another."""
        for mask in masks:
            masking = self._masking(self.dense.blocks, mask, needed(self.dense, mask))
            with masking, torch.inference_mode(), _heard(self.dense) as read:
                output = self.dense.module(**batch.forward_arguments(self.dense.dtype))
            logits = output.logits.reshape(-1, output.logits.shape[-1])[batch.rows]
            states = None
            if read and read[-1].shape[:-1] == output.logits.shape[:-1]:
                states = read[-1].reshape(-1, read[-1].shape[-1])[batch.rows]
            kept = naive_passes([mask])
            self.passes.add(kept if self._masking is skipped else mask.depth, kept)
            yield mask, LogitScorer(logits, states)


@contextmanager
def _heard(dense: DenseModel) -> Iterator[list[Tensor]]:
    """What the output matrix is applied to while the model runs; empty where it is no module."""
    read: list[Tensor] = []
    output = dense.module.get_output_embeddings()
    if not isinstance(output, nn.Module):
        yield read
        return

    def note(module: nn.Module, args: Any) -> None:
        read[:] = [arg for arg in args[:1] if isinstance(arg, Tensor)]

    hook = output.register_forward_pre_hook(note)
    try:
        yield read
    finally:
        hook.remove()
