"""An evaluator of landscapes whose examples come in parts, for races without a model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from shoal.core.mask import Mask
from shoal.core.partition import random_parts
from shoal.engine.evaluator import Evaluator
from shoal.engine.runners import Passes
from shoal.engine.store import Store
from shoal.engine.trie import naive_passes, shared_passes
from shoal.testing.landscapes import Landscape, Stopped


@dataclass(frozen=True)
class Examples:
    """A micro-batch: the whole of a part."""

    examples: tuple[int, ...]


@dataclass
class PartedObjective:
    """What an evaluator and a racer ask of an objective."""

    num_examples: int
    batches: Sequence[Examples]
    weights: Sequence[float] | None = None

    @property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """One micro-batch each."""
        return tuple((index,) for index in range(len(self.batches)))


@dataclass
class LandscapeLosses:
    """Losses of a landscape, batch by batch.

    Attributes:
        landscape: The losses.
        batches: The micro-batches.
        stop_after: Runs that are done before `Stopped` is raised within the next.
        passes: Work done.
        runs: Every set of masks that was run, with its micro-batches.
    """

    landscape: Landscape
    batches: Sequence[Examples]
    stop_after: int | None = None
    passes: Passes = field(default_factory=Passes)
    runs: list[tuple[tuple[int, ...], list[Mask]]] = field(default_factory=list)

    def run(
        self, batches: Sequence[int], masks: Sequence[Mask]
    ) -> Iterator[tuple[int, Mask, list[float]]]:
        """The losses of every batch and every mask."""
        if self.stop_after is not None and len(self.runs) >= self.stop_after:
            raise Stopped
        self.runs.append((tuple(batches), list(masks)))
        self.passes.blocks += len(batches) * shared_passes(masks)
        self.passes.naive += len(batches) * naive_passes(masks)
        for index in batches:
            for mask in masks:
                losses = self.landscape.losses(mask)
                yield index, mask, [losses[e] for e in self.batches[index].examples]


def parted_evaluator(
    landscape: Landscape,
    *,
    parts: int = 4,
    seed: int = 0,
    weights: Sequence[float] | None = None,
    store: Store | None = None,
    stop_after: int | None = None,
) -> Evaluator:
    """An evaluator of a landscape; its `source` remembers what was run.

    Args:
        landscape: The losses.
        parts: Most parts of the examples.
        seed: Seed of the parts.
        weights: Weights of the examples.
        store: Where evaluations are kept; None keeps them in memory.
        stop_after: As for `LandscapeLosses`.
    """
    count = len(landscape.losses(Mask.dense(landscape.depth)))
    batches = [Examples(part) for part in random_parts(count, parts, seed)]
    objective: Any = PartedObjective(count, batches, weights)
    source = LandscapeLosses(landscape, batches, stop_after)
    store = Store(None, {}, weights) if store is None else store
    return Evaluator(objective, source, store)
