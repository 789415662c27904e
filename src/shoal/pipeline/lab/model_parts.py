"""What a lab run finds of one model, part by part, each kept when it is finished."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from shoal.config.lab_run import LabRunConfig
from shoal.config.shifts import ShiftSettings
from shoal.core.errors import UsageError
from shoal.core.mask import Mask
from shoal.core.records import Mean
from shoal.engine.artifacts import Artifacts
from shoal.lab.checkpoint import LabCheckpoint, load_checkpoint
from shoal.lab.controls import select
from shoal.lab.learning import learning
from shoal.lab.placed import place
from shoal.lab.records import Cell, Selection, Shift, Shifts
from shoal.lab.shift import measure, transfer
from shoal.lab.study import Placed
from shoal.lab.tasks import Task, tasks_of
from shoal.pipeline.kept import Kept

FREE = frozenset({"batch"})
"""Options of the shift experiments on which no result depends."""

OnPart = Callable[[str], None]


class ModelParts:
    """The parts of one model.

    Args:
        config: The options.
        where: The model.
        store: File of finished parts.
        on_part: Told of each part that is done.
    """

    def __init__(self, config: LabRunConfig, where: str, store: Path, on_part: OnPart) -> None:
        self.config, self.on_part = config, on_part
        self.checkpoint: LabCheckpoint = load_checkpoint(where)
        artifacts = Artifacts(store)
        artifacts.attach(store)
        self.kept = Kept(artifacts)
        self.tasks = tasks_of(self.checkpoint, config.shifts, config)
        values = config.model_dump(mode="json", include=set(ShiftSettings.model_fields) - FREE)
        self._options: dict[str, Any] = values

    def _part(self, name: str, kind: Any, extra: Any, compute: Callable[[], Any]) -> Any:
        key = [self.checkpoint.fingerprint, self._options, extra]
        found = self.kept.part(f"{self.checkpoint.name}: {name}", kind, key, compute)
        self.on_part(name)
        return found

    def selections(self) -> list[Selection]:
        """What is chosen for each task."""
        return [
            self._part(
                f"select {task.name}",
                Selection,
                task.name,
                partial(select, task, self.config),
            )
            for task in self.tasks
        ]

    def shifts(self, chosen: list[Selection]) -> Shifts:
        """Every task of the model, judged on test functions."""
        masks = [mask for one in chosen for mask in (one.best, one.bsba)]
        told = [str(mask) for mask in masks]
        shifts = tuple(
            self._part(
                f"test {task.name}",
                Shift,
                [task.name, told],
                partial(measure, task, one, masks),
            )
            for task, one in zip(self.tasks, chosen, strict=True)
        )
        names = [task.name for task in self.tasks]
        cells = self._part(
            "transfer", tuple[Cell, ...], [names, told], partial(transfer, self.tasks, chosen)
        )
        return Shifts(
            model=self.checkpoint.name,
            fingerprint=self.checkpoint.fingerprint,
            seed=self.checkpoint.config.seed,
            trained=self.checkpoint.config.family.model_dump(mode="json"),
            settings=self._options,
            shifts=shifts,
            transfer=cells,
        )

    def learning(self) -> Mean:
        """How well the task of training was learned."""
        return self._part("learning", Mean, None, partial(learning, self.tasks[0]))

    def geometries(self, chosen: list[Selection]) -> tuple[Placed, ...]:
        """The geometry on the tasks that were asked for."""
        trained = self.tasks[0]
        options = [self.config.geometry, self.config.seed]
        return tuple(
            self._part(
                f"geometry {task.name}",
                Placed,
                [task.name, str(_placed(one)), options],
                partial(self._place, trained, task, one),
            )
            for task, one in zip(self.tasks, chosen, strict=True)
            if wanted(self.config, task)
        )

    def _place(self, trained: Task, task: Task, one: Selection) -> Placed:
        return place(
            self.checkpoint,
            trained,
            task,
            _placed(one),
            functions=self.config.geometry,
            skip=self.config.skip,
            seed=self.config.seed,
        )


def _placed(one: Selection) -> Mask:
    """The mask whose geometry is taken: BEST, or the best single removal where that is dense."""
    return one.best or one.single


def wanted(config: LabRunConfig, task: Task) -> bool:
    """Whether the geometry on a task is taken."""
    return not task.in_distribution and task.sigma in config.geometry_shifts


def count_parts(config: LabRunConfig, where: str) -> int:
    """How many parts a model has.

    Raises:
        UsageError: If the model is none, or no tasks can be made for it.
    """
    few = config.model_copy(update={"selection": 2, "test": 2})
    checkpoint = load_checkpoint(where)
    if checkpoint.config.layers < 2:
        raise UsageError(f"{where} has one block, and none can be removed. Train a deeper model.")
    tasks = tasks_of(checkpoint, config.shifts, few)
    return 2 * len(tasks) + 2 + sum(wanted(config, task) for task in tasks)
