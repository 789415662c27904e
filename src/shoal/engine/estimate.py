"""Time and memory of a search, measured on the user's data before it starts."""

import time
from dataclasses import dataclass
from math import ceil

import torch

from shoal.core.mask import Mask
from shoal.engine.forecast import Forecast
from shoal.engine.runners import Passes, Runner
from shoal.models.available import free_memory
from shoal.models.dense import DenseModel
from shoal.objectives.base import ScoringObjective


@dataclass(frozen=True)
class Estimate:
    """What a search will take.

    Attributes:
        seconds: Wall time.
        bytes: Peak memory of weights, states and work space.
        cache_bytes: The part of it that is states kept between rounds.
    """

    seconds: float
    bytes: int
    cache_bytes: int


def cache_share(dense: DenseModel, objective: ScoringObjective, gigabytes: float | None) -> int:
    """Bytes for kept states per micro-batch.

    Args:
        dense: The model.
        objective: The objective.
        gigabytes: The user's total; None takes a fifth of the free memory.
    """
    total = int(gigabytes * 1e9) if gigabytes is not None else free_memory(dense.device) // 5
    return total // max(1, len(objective.batches))


def state_bytes(dense: DenseModel, tokens: int) -> int:
    """Bytes of one hidden state of so many positions."""
    width = dense.module.get_input_embeddings().weight.shape[1]
    return tokens * width * dense.module.dtype.itemsize


def estimate(
    dense: DenseModel,
    objective: ScoringObjective,
    runner: Runner,
    forecast: Forecast,
    cache_bytes_per_batch: int,
) -> Estimate:
    """Time one dense and one pruned pass of the largest micro-batch and scale up.

    Args:
        dense: The model.
        objective: The objective, prepared.
        runner: How masks will be run.
        forecast: What the search will evaluate.
        cache_bytes_per_batch: Budget of kept states per micro-batch.
    """
    batch = max(objective.batches, key=lambda b: b.tokens.num_tokens)
    tokens = batch.tokens.to(dense.device)
    full = Mask.dense(dense.depth)
    half = Mask.of(dense.depth, range(dense.depth // 2, dense.depth))
    times = {}
    with torch.inference_mode():
        for mask in (full, full, half):
            begin = time.perf_counter()
            for _, scorer in runner.run(None, tokens, [mask]):
                scorer.token_logprobs(tokens.pick, tokens.targets).sum().item()
            times[mask] = time.perf_counter() - begin
    runner.passes = Passes()
    removed = full.depth - len(half.kept)
    per_block = max(times[full] - times[half], 0.0) / removed
    per_block = per_block or times[full] / full.depth
    per_mask = max(times[full] - per_block * full.depth, 0.0)
    passes = forecast.shared if runner.name == "replay" else forecast.naive
    scale = objective.num_tokens / tokens.num_tokens
    seconds = scale * (passes * per_block + (forecast.evaluations + 1) * per_mask)
    weights = sum(p.numel() * p.element_size() for p in dense.module.parameters())
    one = state_bytes(dense, tokens.num_tokens)
    kept = sum(
        min(cache_bytes_per_batch, ceil(forecast.shared) * state_bytes(dense, b.tokens.num_tokens))
        for b in objective.batches
    )
    # A block works on a handful of states at once, of which the MLP's are a few times as wide.
    work = 24 * one + 2**26
    return Estimate(seconds, weights + work + kept, kept if runner.name == "replay" else 0)
