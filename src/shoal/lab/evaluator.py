"""Masks of a lab model become losses; masks asked for together share the blocks they start with."""

import time
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shoal.core.errors import UsageError
from shoal.core.evaluation import Cost, Evaluation
from shoal.core.mask import Mask
from shoal.engine.runners import Passes
from shoal.engine.trie import visits
from shoal.lab.functions import Prompts
from shoal.lab.model import LabModel

Values = NDArray[np.float64]


class LabEvaluator:
    """Squared errors of masked models on fixed prompts, as `shoal.engine.driver` asks for them.

    An example is a function; its loss is the mean squared error over its points after the first
    few. Predictions are float32, what follows from them is float64. No mask is run twice.

    Args:
        model: The model, in eval mode.
        prompts: The functions.
        skip: First points of each prompt that no loss counts: too few came before them.
        batch: Prompts in one pass.

    Attributes:
        passes: Work done so far, in block passes over one batch of prompts.

    Raises:
        UsageError: If no point is left to count.
    """

    def __init__(
        self, model: LabModel, prompts: Prompts, *, skip: int = 2, batch: int = 64
    ) -> None:
        if skip >= prompts.points:
            raise UsageError(
                f"cannot leave out the first {skip} predictions of prompts of {prompts.points} "
                "points: none is left to count. Leave out fewer (--skip)."
            )
        self.model, self.prompts, self.skip, self.batch = model, prompts, skip, batch
        self.passes = Passes()
        self._known: dict[Mask, tuple[Evaluation, NDArray[np.float32]]] = {}
        self._y: Values = prompts.y.double().cpu().numpy()

    def evaluate(self, masks: Sequence[Mask]) -> list[Evaluation]:
        """Evaluate masks: one evaluation each, in the same order.

        Raises:
            UsageError: If a mask is of another depth, or removes parts of blocks.
        """
        missing = [mask for mask in dict.fromkeys(masks) if mask not in self._known]
        if missing:
            self._compute(missing)
        return [self._known[mask][0] for mask in masks]

    def predictions(self, mask: Mask) -> Values:
        """What the masked model predicts for each point [B, n]."""
        self.evaluate([mask])
        return self._known[mask][1].astype(np.float64)

    def errors(self, mask: Mask) -> Values:
        """Squared error at each point [B, n]; point i is predicted from i points before it."""
        found: Values = (self.predictions(mask) - self._y) ** 2
        return found

    def losses(self, mask: Mask) -> Values:
        """Loss of each function [B]."""
        return np.array(self.evaluate([mask])[0].losses)

    @property
    def values(self) -> Values:
        """The true values [B, n]."""
        return self._y

    def _compute(self, masks: list[Mask]) -> None:
        for mask in masks:
            self._check(mask)
        begin, before = time.perf_counter(), self.passes.blocks
        predicted = {mask: np.empty(self._y.shape, np.float32) for mask in masks}
        device = next(self.model.parameters()).device
        with torch.inference_mode():
            for start in range(0, len(self.prompts), self.batch):
                part = self.prompts.rows(start, start + self.batch)
                for mask, found in self._run(part.x.to(device), part.y.to(device), masks):
                    predicted[mask][start : start + self.batch] = found.cpu().numpy()
        cost = Cost(
            (self.passes.blocks - before) / len(masks),
            (time.perf_counter() - begin) / len(masks),
        )
        for mask, values in predicted.items():
            errors = (values.astype(np.float64) - self._y) ** 2
            evaluation = Evaluation.of(mask, errors[:, self.skip :].mean(1), cost=cost)
            self._known[mask] = evaluation, values

    def _run(self, x: Tensor, y: Tensor, masks: Sequence[Mask]) -> Iterator[tuple[Mask, Tensor]]:
        """Predictions of distinct masks, depth first over their trie."""
        entry = self.model.entry(x, y)
        waiting: dict[int, Tensor] = {0: entry}
        for visit in visits(masks):
            start = max(place for place, state in enumerate(visit.path) if state in waiting)
            hidden = waiting[visit.path[start]]
            waiting = {s: h for s, h in waiting.items() if s in visit.keep} | {0: entry}
            for state, site in visit.steps[start:]:
                hidden = self.model.run_block(site.layer, hidden)
                if state in visit.keep:
                    waiting[state] = hidden
            self.passes.add(len(visit.steps) - start, len(visit.steps))
            yield visit.mask, self.model.read(hidden)

    def _check(self, mask: Mask) -> None:
        if mask.depth != self.model.depth:
            raise UsageError(
                f"{mask} is a mask of {mask.depth} blocks, but the lab model has "
                f"{self.model.depth}."
            )
        if not mask.whole_blocks_only:
            raise UsageError(f"{mask} removes parts of blocks; the lab removes whole blocks.")
