"""Choosing how to run masks, by comparing the two ways on the user's own data."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from shoal.core.mask import Mask
from shoal.engine.runners import ReplayRunner, Runner, WholeRunner
from shoal.models.batch import TokenBatch
from shoal.models.dense import DenseModel
from shoal.models.handing import obstacle_to_replay
from shoal.models.replay import Replay
from shoal.models.tail import find_head, tolerance

log = logging.getLogger(__name__)

CHECKED = 512
"""Positions that are run both ways: whole rows, so as many as one row has at least."""


@dataclass(frozen=True)
class Choice:
    """The runner that was chosen, and why.

    Attributes:
        runner: The runner.
        reason: One sentence for the user.
        difference: Largest difference of a token's log-probability between the two ways.
    """

    runner: Runner
    reason: str
    difference: float | None


def choose_runner(
    dense: DenseModel,
    batch: TokenBatch,
    *,
    cache_bytes: int = 0,
    force: str | None = None,
    masks: Sequence[Mask] = (),
) -> Choice:
    """Pick replay where it reproduces the model's own forward, else the whole model.

    The dense model and one random mask are run both ways on the first rows of a real batch.

    Args:
        dense: The model.
        batch: A real batch, best the one with the longest row, on the model's device.
        cache_bytes: Memory for states kept between sets of masks, per micro-batch.
        force: `replay` or `whole`, to skip the choice but not the comparison.
        masks: Further masks to run both ways, of the kind that will be asked for.
    """
    batch = batch.first(CHECKED)
    with torch.inference_mode():
        plain = Replay(dense).returns_tensors(batch)
        whole = WholeRunner(dense, plain)
        if force == "whole":
            return Choice(whole, "the whole model is run for every mask, as asked", None)
        if obstacle := obstacle_to_replay(dense, batch):
            return Choice(whole, f"{obstacle}: the whole model is run", None)
        head = find_head(dense, batch)
        if head is None:
            why = "the head of this architecture cannot be taken apart"
            if not dense.module(**batch.forward_arguments(dense.dtype)).logits.isfinite().all():
                why = "the model's own logits are not finite on these data"
            return Choice(whole, f"{why}: the whole model is run", None)
        replay = ReplayRunner(dense, head, cache_bytes)
        rng = np.random.default_rng(0)
        removed = rng.choice(dense.depth, size=max(1, dense.depth // 4), replace=False)
        masks = [Mask.dense(dense.depth), Mask.of(dense.depth, removed.tolist()), *masks]
        try:
            shared = _scores(ReplayRunner(dense, head), batch, masks)
        except (RuntimeError, TypeError, IndexError, KeyError, ValueError) as error:
            return Choice(
                whole, f"blocks cannot be run singly ({error}): the whole model is run", None
            )
        own = _scores(whole, batch, masks)
    gap = max(float((shared[m] - own[m]).abs().max()) for m in masks)
    size = max(1.0, max(float(own[m].abs().max()) for m in masks))
    whole.passes = type(whole.passes)()
    if not gap <= tolerance(dense.dtype) * size:
        return Choice(
            whole,
            f"replayed blocks differ from the model's own forward by {gap:.2g} nats: "
            "the whole model is run",
            gap,
        )
    return Choice(replay, f"replayed blocks agree with the whole model within {gap:.2g} nats", gap)


def _scores(runner: Runner, batch: TokenBatch, masks: list[Mask]) -> dict[Mask, Tensor]:
    return {
        mask: scorer.token_logprobs(batch.pick, batch.targets)
        for mask, scorer in runner.run(None, batch, masks)
    }
