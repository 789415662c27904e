"""The one place where masks become losses: exact, in order, and never the same mask twice."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import torch

from shoal.core.errors import UsageError
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask
from shoal.engine.runners import Passes, Runner
from shoal.engine.store import Store
from shoal.models.dense import DenseModel
from shoal.objectives.base import Objective

log = logging.getLogger(__name__)

Step = Callable[[int, int], None]
"""Called with (mask passes done, mask passes planned) while a set of masks is run."""


class Evaluator:
    """Evaluates masks of one model under one objective.

    Args:
        dense: The model.
        objective: The objective, prepared.
        runner: How masks are run.
        store: Where evaluations are kept.
        on_step: Called after each mask of each micro-batch.
    """

    def __init__(
        self,
        dense: DenseModel,
        objective: Objective,
        runner: Runner,
        store: Store,
        on_step: Step | None = None,
    ) -> None:
        self.dense, self.objective, self.runner, self.store = dense, objective, runner, store
        self.on_step = on_step
        self.computed = 0
        self.not_finite: list[Mask] = []

    @property
    def passes(self) -> Passes:
        """Work done so far."""
        return self.runner.passes

    def evaluate(self, masks: Sequence[Mask]) -> list[Evaluation]:
        """Evaluate masks.

        Args:
            masks: The masks; repeats cost nothing.

        Returns:
            One evaluation per mask, in the same order. A mask whose loss is not finite has
            `finite == False`, ranks last, and is reported.

        Raises:
            UsageError: If a mask removes parts of blocks.
        """
        parts = [mask for mask in masks if not mask.whole_blocks_only]
        if parts:
            raise UsageError(f"only whole blocks can be evaluated so far, not {parts[0]}.")
        asked = {mask: self.store.get(mask) for mask in masks}
        found = {mask: known for mask, known in asked.items() if known is not None}
        self._report(found.values())
        missing = [mask for mask in asked if mask not in found]
        if missing:
            found |= {evaluation.mask: evaluation for evaluation in self._run(missing)}
        return [found[mask] for mask in masks]

    def _run(self, masks: list[Mask]) -> list[Evaluation]:
        number = self.store.begin(masks)
        objective = self.objective
        losses = {mask: [float("nan")] * objective.num_examples for mask in masks}
        done, planned = 0, len(masks) * len(objective.batches)
        with torch.inference_mode():
            for index, batch in enumerate(objective.batches):
                local = replace(batch, tokens=batch.tokens.to(self.dense.device))
                for mask, scorer in self.runner.run(index, local.tokens, masks):
                    values = objective.losses(scorer, local).tolist()
                    for example, value in zip(batch.examples, values, strict=True):
                        losses[mask][example] = value
                    done += 1
                    if self.on_step is not None:
                        self.on_step(done, planned)
        evaluations = [Evaluation.of(m, losses[m], objective.weights) for m in masks]
        self._report(evaluations)
        self.store.commit(number, evaluations)
        self.computed += len(evaluations)
        return evaluations

    def _report(self, evaluations: Iterable[Evaluation]) -> None:
        for evaluation in evaluations:
            if not evaluation.finite and evaluation.mask not in self.not_finite:
                self.not_finite.append(evaluation.mask)
                log.warning("the loss of %s is not finite; it ranks last", evaluation.mask)
