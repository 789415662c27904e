"""Where losses come from: scored text, which masks share, or generated text, which they do not."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import torch

from shoal.core.mask import Mask
from shoal.engine.runners import Passes, Runner
from shoal.models.batch import TokenBatch
from shoal.models.dense import DenseModel
from shoal.models.head import Scorer
from shoal.objectives.base import ScoringObjective


class LossSource(Protocol):
    """Runs masks over micro-batches of one objective."""

    @property
    def passes(self) -> Passes:
        """Work done so far."""
        ...

    def run(
        self, batches: Sequence[int], masks: Sequence[Mask]
    ) -> Iterator[tuple[int, Mask, list[float]]]:
        """Yield, for every batch and every mask in any order, the losses of the batch's examples.

        Args:
            batches: Indices of micro-batches.
            masks: Distinct masks.
        """
        ...


class ScoredLosses:
    """Losses on given text, by a runner that shares work between masks.

    Args:
        dense: The model.
        objective: The objective, prepared.
        runner: How masks are run.
    """

    def __init__(self, dense: DenseModel, objective: ScoringObjective, runner: Runner) -> None:
        self.dense, self.objective, self.runner = dense, objective, runner
        self._references: dict[int, Scorer] = {}

    @property
    def passes(self) -> Passes:
        """Work done so far."""
        return self.runner.passes

    def run(
        self, batches: Sequence[int], masks: Sequence[Mask]
    ) -> Iterator[tuple[int, Mask, list[float]]]:
        """Batch by batch, so that the masks share what lies below their first difference."""
        for index in batches:
            batch = self.objective.batches[index]
            local = replace(batch, tokens=batch.tokens.to(self.dense.device))
            with torch.inference_mode():
                reference = self._reference(index, local.tokens)
                for mask, scorer in self.runner.run(index, local.tokens, masks):
                    yield index, mask, self.objective.losses(scorer, local, reference).tolist()

    def _reference(self, index: int, tokens: TokenBatch) -> Scorer | None:
        """The dense model's scorer; kept where it holds hidden states, made anew where logits."""
        if not self.objective.needs_reference:
            return None
        if index not in self._references:
            dense = Mask.dense(self.dense.depth)
            (_, scorer), *_ = self.runner.run(index, tokens, [dense])
            if not scorer.keepable:
                return scorer
            self._references[index] = scorer
        return self._references[index]
