"""What a lab run will take, from one timed pass per size of model."""

import time
from collections.abc import Sequence

import torch

from shoal.config.lab_run import LabRunConfig
from shoal.lab.checkpoint import LabCheckpoint, load_checkpoint
from shoal.lab.functions import draw_prompts
from shoal.pipeline.cost import Cost

TIMED = 64
"""Functions in the timed pass."""

SHARED = 0.6
"""Share of a mask's blocks that are run anew when masks share their prefixes, about."""

POINTS = 90
"""Passes over the functions of a geometry, about: alphas times selected and control sites, maps."""


PROCESS_BYTES = 0.5e9
"""What a process takes, torch included."""


def estimate(config: LabRunConfig, wheres: Sequence[str]) -> Cost:
    """Time and memory; parts that are kept already are counted all the same."""
    seconds = 0.0
    for where in wheres:
        checkpoint = load_checkpoint(where)
        seconds += _seconds_of(config, checkpoint)
    processes = min(config.workers, len(wheres))
    return Cost(seconds / processes, processes * PROCESS_BYTES)


def _seconds_of(config: LabRunConfig, checkpoint: LabCheckpoint) -> float:
    per_function = _pass_seconds(checkpoint) / TIMED
    depth = checkpoint.config.layers
    tasks = 1 + len(config.shifts)
    # TALE down to one block, as many random masks again, then the controls on the test functions.
    searched = depth * (depth + 1) / 2
    masks = 2 * searched * config.selection
    masks += (config.random_masks + 5 + 2 * tasks) * config.test
    placed = 3 * POINTS * config.geometry * len(config.geometry_shifts)
    return per_function * (SHARED * tasks * masks + placed)


def _pass_seconds(checkpoint: LabCheckpoint) -> float:
    prompts = draw_prompts(checkpoint.config.family, TIMED, checkpoint.config.points, 0)
    times = []
    with torch.inference_mode():
        for _ in range(3):
            start = time.monotonic()
            checkpoint.model(prompts.x, prompts.y)
            times.append(time.monotonic() - start)
    return min(times)
