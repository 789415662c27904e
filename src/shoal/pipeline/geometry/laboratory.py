"""A model of the lab, with two distributions of the coefficients as its tasks."""

from dataclasses import dataclass
from pathlib import Path

from shoal.config.base import Config
from shoal.config.geometry import GeometryConfig
from shoal.config.lab import DistributionField, FamilyConfig
from shoal.core import fingerprint
from shoal.core.errors import UsageError
from shoal.core.mask import Mask
from shoal.core.plan import ModelRef, Plan
from shoal.geometry.sides import Side
from shoal.geometry.stack import Batch, Stack, Texts
from shoal.geometry.surrogates import ENOUGH
from shoal.lab.checkpoint import CONFIG, LabCheckpoint, load_checkpoint
from shoal.lab.functions import Prompts, draw_prompts
from shoal.lab.losses import SquaredErrors
from shoal.lab.stack import CLASSES, lab_stack, lab_texts
from shoal.lab.streams import FITTED, PROFILED
from shoal.models.device import pick_device
from shoal.pipeline.geometry.subject import Subject, Task, counted_of, fitting_tokens
from shoal.pipeline.listener import Listener
from shoal.pipeline.plans import check_plan
from shoal.pipeline.prepare import Model

PREFIX = "lab:"
"""What the name of a lab model begins with."""

LANGUAGE_ONLY = ("max_tokens", "metric", "data_dir", "bos", "dtype")
"""Options that say nothing of a lab model."""

PROBED = 8
"""Functions on which passes are timed."""


@dataclass(frozen=True)
class LabSource:
    """A lab model and its tasks.

    Attributes:
        checkpoint: The model.
        name: What it is called, with the prefix.
        id: The functions that it is adapted to.
        ood: The shifted ones.
    """

    checkpoint: LabCheckpoint
    name: str
    id: FamilyConfig
    ood: FamilyConfig

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return self.checkpoint.model.depth


class _Tasks(Config):
    id: DistributionField
    ood: DistributionField


def is_lab(model: Model) -> bool:
    """Whether a model is meant to be one of the lab."""
    return isinstance(model, str) and (model.startswith(PREFIX) or (Path(model) / CONFIG).is_file())


def check_lab(config: GeometryConfig, model: str) -> LabSource:
    """Find a lab model, which is small enough to be loaded at once, and read its tasks.

    Raises:
        UsageError: If there is none, a task is no distribution, or an option is not for the lab.
    """
    for option in LANGUAGE_ONLY:
        if option in config.model_fields_set:
            raise UsageError(
                f"--{option.replace('_', '-')} says nothing of a lab model, which reads numbers. "
                "Leave it out."
            )
    checkpoint = load_checkpoint(model.removeprefix(PREFIX))
    tasks = _Tasks.read({"id": config.id, "ood": config.ood})
    if tasks.id == tasks.ood:
        raise UsageError(
            f"--id and --ood are both {tasks.id}, and a task has no shift from itself. Name "
            "another for one of them."
        )
    points = checkpoint.config.points
    if config.skip_first > 2 * points - 3:
        raise UsageError(
            f"without the first {config.skip_first} of {2 * points - 1} tokens no two are left to "
            "compare. Lower --skip-first."
        )
    trained = checkpoint.config.family
    id, ood = (trained.model_copy(update={"coefficients": c}) for c in (tasks.id, tasks.ood))
    return LabSource(checkpoint, PREFIX + checkpoint.name, id, ood)


def open_lab(
    source: LabSource,
    config: GeometryConfig,
    plan: Plan | Mask | None,
    listener: Listener,
    *,
    any_model: bool,
) -> Subject:
    """Draw the functions of both tasks.

    Raises:
        UsageError: If the plan is another model's.
    """
    checkpoint, mask = source.checkpoint, None
    if plan is not None:
        mask = check_plan(
            plan, source.depth, source.name, lambda: checkpoint.fingerprint, any_model=any_model
        )
    listener.stage("Drawing functions")
    device = pick_device(config.device)
    model = checkpoint.model.to(device)
    making = _Making(source, config, lab_stack(model))
    id, ood = making.task(source.id), making.task(source.ood)
    trained = checkpoint.config.family
    notes = []
    if source.id != trained:
        notes.append(
            f"{source.name} was trained on {trained.coefficients}, not on the {config.id} that it "
            "is said to be adapted to"
        )
    return Subject(
        ref=ModelRef(id=source.name, revision=None, fingerprint=checkpoint.fingerprint),
        key=f"{checkpoint.fingerprint}:float32",
        stack=making.stack,
        width=model.config.width,
        weight_bytes=sum(p.numel() * p.element_size() for p in model.parameters()),
        id=id,
        ood=ood,
        probe=lab_texts(making.draw(source.id, PROBED, FITTED), "probe").batches[0],
        mask=mask,
        classes=CLASSES,
        notes=tuple(notes),
        settings={
            "dtype": "float32",
            "device": str(device),
            "family": trained.model_dump(mode="json"),
        },
    )


@dataclass(frozen=True)
class _Making:
    """What tasks are made of."""

    source: LabSource
    config: GeometryConfig
    stack: Stack

    def draw(self, family: FamilyConfig, count: int, stream: int) -> Prompts:
        """Functions of a stream; both tasks have the same up to scale."""
        points = self.source.checkpoint.config.points
        return draw_prompts(family, count, points, (self.config.seed, stream))

    def task(self, family: FamilyConfig) -> Task:
        """Prompts and losses of one task."""
        config, points = self.config, self.source.checkpoint.config.points
        width = self.source.checkpoint.config.width
        name = str(family.coefficients)
        profiled = self.draw(family, max(config.items, config.loss_items), PROFILED)
        texts = self._texts(profiled.rows(0, config.items), name)
        surrogate = texts
        described = {
            "task": name,
            "data": f"functions with coefficients {name} and x {family.inputs}",
            "sequences": config.items,
            "states": counted_of(texts),
            "loss_items": config.loss_items,
        }
        count = config.items
        if "surrogates" in config.parts:
            wanted = fitting_tokens(config.surrogate_tokens or ENOUGH * width)
            # A prompt has one y less than it has x.
            count = max(2, -(-wanted // (points - 1)))
            surrogate = self._texts(self.draw(family, count, FITTED), name)
            described |= {"surrogate_sequences": count, "surrogate_states": counted_of(surrogate)}
        losses = SquaredErrors(self.stack, self._batches(profiled.rows(0, config.loss_items)))
        drawn = [family.model_dump(mode="json"), points, config.seed, config.skip_first]
        return Task(
            side=Side(texts, losses, losses.metric),
            surrogate=surrogate,
            key=fingerprint.of_json([drawn, config.items, config.loss_items, losses.skip]),
            surrogate_key=fingerprint.of_json([drawn, count]),
            loss_tokens=config.loss_items * (2 * points - 1),
            described=described,
        )

    @property
    def _together(self) -> int:
        """Prompts that run together."""
        points = self.source.checkpoint.config.points
        return max(1, self.config.batch_tokens // (2 * points - 1))

    def _batches(self, prompts: Prompts) -> list[Prompts]:
        step = self._together
        return [prompts.rows(i, i + step) for i in range(0, len(prompts), step)]

    def _texts(self, prompts: Prompts, name: str) -> Texts:
        texts = lab_texts(prompts, name, self._together)
        if not self.config.skip_first:
            return texts
        shown = []
        for batch in texts.batches:
            positions = batch.positions.clone()
            positions[:, : self.config.skip_first] = False
            shown.append(Batch.of(batch.inputs, positions))
        return Texts(name, tuple(shown))
