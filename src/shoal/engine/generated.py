"""Losses on generated text: the pruned model is built and writes; masks share no work."""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch
from transformers import PreTrainedModel

from shoal.core.errors import UnsupportedModelError
from shoal.core.layout import Layout
from shoal.core.mask import Mask
from shoal.engine.estimate import Estimate, state_bytes
from shoal.engine.forecast import Forecast
from shoal.engine.runners import Passes
from shoal.models.dense import DenseModel
from shoal.models.masked import muted
from shoal.models.sublayers import needed
from shoal.objectives.base import GenerationObjective
from shoal.surgery.skipping import pruned_model

log = logging.getLogger(__name__)


class GeneratedLosses:
    """Losses on what masked models write.

    Each mask's model is built once, of the dense model's own tensors. Where the model type cannot
    express a mask, its blocks run and are discarded, which keeps the KV cache as it is; this is
    as right and takes a dense model's time.

    A block pass is one block in one call of the model: for the prompts, and for every token after.

    Args:
        dense: The model.
        objective: The objective, prepared.
    """

    def __init__(self, dense: DenseModel, objective: GenerationObjective) -> None:
        self.dense, self.objective = dense, objective
        self.muted: list[Mask] = []
        self._passes = Passes()

    @property
    def passes(self) -> Passes:
        """Work done so far."""
        return self._passes

    def run(
        self, batches: Sequence[int], masks: Sequence[Mask]
    ) -> Iterator[tuple[int, Mask, list[float]]]:
        """Mask by mask, so that one model at a time is in memory besides the dense one."""
        for mask in masks:
            model = self._model(mask)
            for index in batches:
                yield index, mask, self._losses(model, mask, index)

    def _losses(self, model: PreTrainedModel | None, mask: Mask, index: int) -> list[float]:
        batch = self.objective.batches[index]
        branches = needed(self.dense, mask)
        masking = nullcontext() if model else muted(self.dense.blocks, mask, branches)
        runs = self.dense.module if model is None else model
        with masking, torch.inference_mode(), _counted(runs) as calls:
            losses = self.objective.losses(runs, batch)
        kept = len(Layout.of(mask))
        done = mask.depth if model is None else kept
        self._passes.blocks += calls[0] * done
        self._passes.naive += calls[0] * kept
        self._passes.heads += calls[0]
        return losses

    def _model(self, mask: Mask) -> PreTrainedModel | None:
        """The pruned model, or None where it cannot be built."""
        if not mask.removed:
            return self.dense.module
        devices = getattr(self.dense.module, "hf_device_map", {}).values()
        try:
            # Hooks that move states between devices would be lost.
            if mask.kept and len(set(devices)) < 2:
                return pruned_model(self.dense, mask)
            reason = "it keeps no block" if not mask.kept else "the model spans several devices"
        except UnsupportedModelError as error:
            reason = str(error)
        if not self.muted:
            log.warning(
                "removed blocks run and are discarded, at the dense model's cost: %s", reason
            )
        self.muted.append(mask)
        return None


def estimate_generation(
    dense: DenseModel, objective: GenerationObjective, forecast: Forecast
) -> Estimate:
    """Time what the dense model writes for the first micro-batch and scale up.

    A mask that makes the model ramble takes longer, up to the most tokens that are allowed.

    Args:
        dense: The model.
        objective: The objective, prepared; its first micro-batch has the longest prompts.
        forecast: What the search will evaluate.
    """
    begin = time.perf_counter()
    with torch.inference_mode():
        objective.losses(dense.module, objective.batches[0])
    one = time.perf_counter() - begin
    share = len(objective.batches[0].examples) / objective.num_examples
    begin = time.perf_counter()
    last = Mask.of(dense.depth, [dense.depth - 1])
    GeneratedLosses(dense, objective)._model(last)
    build = time.perf_counter() - begin
    seconds = one / share * forecast.naive / dense.depth + build * forecast.evaluations
    weights = sum(p.numel() * p.element_size() for p in dense.module.parameters())
    tokens = -(-objective.num_tokens // len(objective.batches))
    # Keys and values of every block, the prompt's states in one, and some work space.
    cache = 2 * dense.depth * state_bytes(dense, tokens)
    return Estimate(seconds, weights + cache + 24 * state_bytes(dense, tokens) + 2**26, 0)


@contextmanager
def _counted(model: PreTrainedModel) -> Iterator[list[int]]:
    """Count the calls of a model."""
    calls = [0]

    def count(*_: object) -> None:
        calls[0] += 1

    handle = model.register_forward_pre_hook(count)
    try:
        yield calls
    finally:
        handle.remove()
