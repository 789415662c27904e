"""What the sub-layers of a model have: parameters, or seconds in a forward pass."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from shoal.core.errors import UnsupportedModelError
from shoal.core.mask import Part, Site
from shoal.models.branches import BlockBranches
from shoal.models.dense import DenseModel
from shoal.models.replay import Replay
from shoal.models.sublayers import random_batch

REPEATS = 5
"""Times that each sub-layer is timed; the median counts."""

LENGTH = 256
"""Positions per row while timing."""


@dataclass(frozen=True)
class Prices:
    """What each sub-layer has.

    Attributes:
        by_place: One number per sub-layer, in the row attention 0, MLP 0, attention 1, ...
        total: What the whole model has, head and embeddings included.
    """

    by_place: tuple[float, ...]
    total: float


def parameter_prices(dense: DenseModel) -> Prices:
    """Parameters of each sub-layer.

    What attention and MLP share counts to the attention. Where a block has no such branches, half
    of its parameters counts to each, so that blocks are right and nothing else is.
    """
    prices: list[float] = []
    for i, block in enumerate(dense.blocks.layers):
        whole = sum(p.numel() for p in block.parameters())
        mlp = whole / 2
        branches = _branches(dense)
        if branches is not None and branches[i].paired:
            named = block.named_parameters()
            mlp = sum(p.numel() for n, p in named if branches[i].part_of(n) is Part.MLP)
        prices += [whole - mlp, mlp]
    total = sum(p.numel() for p in dense.module.parameters())
    return Prices(tuple(map(float, prices)), float(total))


def time_prices(dense: DenseModel, batch_tokens: int) -> Prices:
    """Seconds that each sub-layer takes in a forward pass over random tokens without a cache.

    Args:
        dense: The model.
        batch_tokens: Positions of the micro-batch.

    Raises:
        UnsupportedModelError: If the blocks cannot be run singly.
    """
    rows = max(1, batch_tokens // LENGTH)
    batch = random_batch(dense, rows, min(LENGTH, batch_tokens))
    replay, branches = Replay(dense), _branches(dense)
    prices: list[float] = []
    with torch.inference_mode():
        captured = replay.capture(batch)
        hidden = captured.entry

        def timed(site: Site) -> float:
            return _seconds(lambda: replay.run(site, hidden.clone(), captured))

        for i in range(dense.depth):
            whole = timed(Site(i))
            parts = [whole / 2, whole / 2]
            if branches is not None and branches[i].paired:
                parts = [timed(Site(i, part)) for part in (Part.ATTN, Part.MLP)]
                # The norms and additions around a branch are timed with each; the block once.
                parts = [p * whole / sum(parts) for p in parts]
            prices += parts
            hidden = replay.run_block(i, hidden, captured)
        arguments = batch.forward_arguments(dense.dtype)
        total = _seconds(lambda: dense.module(**arguments).logits)
    return Prices(tuple(prices), max(total, sum(prices)))


def _branches(dense: DenseModel) -> tuple[BlockBranches, ...] | None:
    try:
        return dense.branches
    except UnsupportedModelError:
        return None


def _seconds(call: Callable[[], Tensor]) -> float:
    call()
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        # Reading one number waits for devices that work ahead.
        call().flatten()[0].item()
        times.append(time.perf_counter() - begin)
    return median(times)
