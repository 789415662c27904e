"""The one place where masks become losses: exact, in order, and never the same mask twice."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from shoal.core.evaluation import Cost, Evaluation
from shoal.core.mask import Mask
from shoal.engine.losses import LossSource
from shoal.engine.runners import Passes
from shoal.engine.store import Store
from shoal.engine.trie import visiting_order
from shoal.objectives.base import Objective

log = logging.getLogger(__name__)

PORTION_SECONDS = 60.0
"""Masks that take longer together are computed and stored in portions of about this time."""

Step = Callable[[int, int], None]
"""Called with (mask passes done, mask passes planned) while a set of masks is run."""


class Evaluator:
    """Evaluates masks of one model under one objective.

    Args:
        objective: The objective, prepared.
        source: Where its losses come from.
        store: Where evaluations are kept.
        on_step: Called after each mask of each micro-batch.
    """

    def __init__(
        self,
        objective: Objective,
        source: LossSource,
        store: Store,
        on_step: Step | None = None,
    ) -> None:
        self.objective, self.source, self.store = objective, source, store
        self.on_step = on_step
        self.computed = 0
        self.not_finite: list[Mask] = []
        self._per_mask: float | None = None

    @property
    def passes(self) -> Passes:
        """Work done so far."""
        return self.source.passes

    def evaluate(self, masks: Sequence[Mask]) -> list[Evaluation]:
        """Evaluate masks.

        Args:
            masks: The masks; repeats cost nothing.

        Returns:
            One evaluation per mask, in the same order. A mask whose loss is not finite has
            `finite == False`, ranks last, and is reported.
        """
        asked = {mask: self.store.get(mask) for mask in masks}
        found = {mask: known for mask, known in asked.items() if known is not None}
        self.report(found.values())
        missing = [mask for mask in asked if mask not in found]
        every = range(len(self.objective.batches))
        done = 0
        for portion in self._portions(missing):
            number = self.store.begin(portion)
            losses, cost = self.compute(portion, every, done, len(missing))
            new = [Evaluation.of(m, losses[m], self.objective.weights, cost) for m in portion]
            self.finish(number, new)
            self._per_mask = cost.seconds
            found |= {evaluation.mask: evaluation for evaluation in new}
            done += len(portion)
        return [found[mask] for mask in masks]

    def _portions(self, masks: list[Mask]) -> Iterator[list[Mask]]:
        """All masks at once, or in turns where a kill would lose too much."""
        size = len(masks)
        if self._per_mask is not None and size * self._per_mask > PORTION_SECONDS:
            # Neighbours in this order share the most.
            masks = visiting_order(masks)
            size = max(1, int(PORTION_SECONDS / self._per_mask))
        for start in range(0, len(masks), max(1, size)):
            yield masks[start : start + size]

    def compute(
        self,
        masks: Sequence[Mask],
        batches: Sequence[int],
        before: int = 0,
        planned: int | None = None,
    ) -> tuple[dict[Mask, NDArray[np.float64]], Cost]:
        """Run masks over some micro-batches, without a look at the store.

        Args:
            masks: Distinct masks.
            batches: Indices of micro-batches.
            before: Masks of the same set that are done, for `on_step`.
            planned: Masks of the whole set; these by default.

        Returns:
            For each mask its losses, NaN for examples of other batches, and each mask's equal
            share of the cost.
        """
        size = self.objective.num_examples
        losses = {mask: np.full(size, np.nan) for mask in masks}
        total = len(batches) * (len(masks) if planned is None else planned)
        begin, blocks = time.perf_counter(), self.passes.blocks
        run = self.source.run(batches, masks)
        for done, (index, mask, values) in enumerate(run, start=1 + before * len(batches)):
            losses[mask][list(self.objective.batches[index].examples)] = values
            if self.on_step is not None:
                self.on_step(done, total)
        cost = Cost(self.passes.blocks - blocks, time.perf_counter() - begin)
        return losses, Cost(cost.blocks / len(masks), cost.seconds / len(masks))

    def finish(self, number: int, evaluations: Sequence[Evaluation]) -> None:
        """Report and store complete evaluations of a batch begun in the store."""
        self.report(evaluations)
        self.store.commit(number, evaluations)
        self.computed += len(evaluations)

    def report(self, evaluations: Iterable[Evaluation]) -> None:
        """Warn of losses that are not finite, once per mask."""
        for evaluation in evaluations:
            if not evaluation.finite and evaluation.mask not in self.not_finite:
                self.not_finite.append(evaluation.mask)
                log.warning("the loss of %s is not finite; it ranks last", evaluation.mask)
