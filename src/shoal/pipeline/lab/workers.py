"""The models of a lab run, one after the other or each in a process."""

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from typing import Any

from shoal.config.lab_run import LabRunConfig
from shoal.core.records import Mean
from shoal.lab.records import Shifts
from shoal.lab.study import Placed
from shoal.pipeline.lab.model_parts import ModelParts
from shoal.pipeline.listener import Listener

LOOK = 1.0
"""Seconds between looks at what the processes have done."""


@dataclass(frozen=True)
class OfModel:
    """What was found of one model."""

    shifts: Shifts
    learning: Mean
    geometries: tuple[Placed, ...]
    seconds: dict[str, float]


def all_models(
    config: LabRunConfig, wheres: Sequence[str], store: Path, listener: Listener
) -> list[OfModel]:
    """Run the experiments on every model, in the order given.

    Args:
        config: The options; with several workers each process has one thread.
        wheres: The models.
        store: File of finished parts.
        listener: Hears of every part.
    """
    if config.workers == 1 or len(wheres) == 1:
        return [
            _of_model(config, where, store, lambda name: listener.advance()) for where in wheres
        ]
    context = multiprocessing.get_context("spawn")
    with (
        context.Manager() as manager,
        ProcessPoolExecutor(config.workers, mp_context=context) as pool,
    ):
        done = manager.Queue()
        futures = [pool.submit(_in_process, config, where, store, done) for where in wheres]
        _watch(futures, done, listener)
        return [future.result() for future in futures]


def _watch(futures: "Sequence[Future[OfModel]]", done: Any, listener: Listener) -> None:
    """Pass on what the processes report until all have ended; the first failure is raised."""
    running = set(futures)
    while running:
        ended, running = wait(running, timeout=LOOK, return_when=FIRST_COMPLETED)
        for future in ended:
            future.result()
        try:
            while True:
                done.get_nowait()
                listener.advance()
        except Empty:
            pass


def _in_process(config: LabRunConfig, where: str, store: Path, done: Any) -> OfModel:
    import torch

    # Several processes with several threads each would wait for one another.
    torch.set_num_threads(1)
    return _of_model(config, where, store, done.put)


def _of_model(
    config: LabRunConfig, where: str, store: Path, on_part: Callable[[str], None]
) -> OfModel:
    parts = ModelParts(config, where, store, on_part)
    chosen = parts.selections()
    shifts = parts.shifts(chosen)
    learned = parts.learning()
    return OfModel(shifts, learned, parts.geometries(chosen), parts.kept.seconds)
