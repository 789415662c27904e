"""Tasks of a lab model: the family that it was trained on, and the same with other ranges."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from shoal.config.lab import Distribution, FamilyConfig
from shoal.config.shifts import ShiftSettings
from shoal.core.errors import UsageError
from shoal.lab.checkpoint import LabCheckpoint
from shoal.lab.evaluator import LabEvaluator
from shoal.lab.functions import draw_prompts
from shoal.lab.streams import SELECTION, TEST

FINEST = 0.001
"""Sigmas are told apart to this."""


@dataclass(frozen=True)
class Task:
    """A family of functions with a lab model's losses on two disjoint draws of it.

    Attributes:
        name: The distribution of the coefficients, and of x where that is shifted.
        sigma: Half width of the coefficients; their standard deviation where they are Gaussian.
        family: The family.
        trained: The family of training.
        seed: Seed of the model, on which the functions depend.
        selection: Functions that masks are chosen on.
        test: Functions that they are judged on.
    """

    name: str
    sigma: float
    family: FamilyConfig
    trained: FamilyConfig
    seed: int
    selection: LabEvaluator
    test: LabEvaluator

    @property
    def in_distribution(self) -> bool:
        """Whether it is the task of training."""
        return self.family == self.trained


def tasks_of(
    checkpoint: LabCheckpoint, sigmas: Sequence[float], settings: ShiftSettings
) -> list[Task]:
    """The task of training, and those with each sigma; none twice.

    Args:
        checkpoint: The model.
        sigmas: Half widths of the coefficients (standard deviations where they are Gaussian).
        settings: Sizes of the draws, and how x is shifted.

    Raises:
        UsageError: If training had coefficients that are not symmetric, or a sigma is not allowed.
    """
    trained = checkpoint.config.family
    families = [trained, *(shifted(trained, sigma, settings.inputs) for sigma in sigmas)]
    distinct = [f for i, f in enumerate(families) if f not in families[:i]]
    return [_task(checkpoint, family, settings) for family in distinct]


def shifted(trained: FamilyConfig, sigma: float, inputs: Distribution | None) -> FamilyConfig:
    """A family with coefficients of another range.

    Args:
        trained: The family of training.
        sigma: Half width, or standard deviation, of the coefficients.
        inputs: Distribution of x; None keeps that of training.

    Raises:
        UsageError: If training had coefficients that are not symmetric, or sigma is not allowed.
    """
    sigma_of(trained)
    if not (isfinite(sigma) and sigma >= FINEST):
        raise UsageError(
            f"cannot draw coefficients with sigma {sigma}: give a number of at least {FINEST:g}."
        )
    changes: dict[str, Distribution] = {
        "coefficients": Distribution.uniform(sigma)
        if trained.coefficients.kind == "uniform"
        else Distribution(kind="gaussian", first=0.0, second=sigma)
    }
    if inputs is not None:
        changes["inputs"] = inputs
    return trained.model_copy(update=changes)


def sigma_of(family: FamilyConfig) -> float:
    """Half width of a family's coefficients; their standard deviation where they are Gaussian.

    Raises:
        UsageError: If they are not symmetric about zero.
    """
    given = family.coefficients
    middle = given.first + (given.second if given.kind == "uniform" else 0.0)
    if middle != 0:
        raise UsageError(
            f"the coefficients {given} are not symmetric about zero, so their range cannot be "
            "scaled. Take a model trained on U(-a,a) or N(0,s)."
        )
    return given.second


def _task(checkpoint: LabCheckpoint, family: FamilyConfig, settings: ShiftSettings) -> Task:
    trained, seed = checkpoint.config.family, checkpoint.config.seed
    sigma = sigma_of(family)
    name = str(family.coefficients)
    if family.inputs != trained.inputs:
        name += f", x {family.inputs}"

    def drawn(stream: int, count: int) -> LabEvaluator:
        points, place = checkpoint.config.points, (seed, stream, _code(sigma))
        prompts = draw_prompts(family, count, points, place)
        return LabEvaluator(checkpoint.model, prompts, skip=settings.skip, batch=settings.batch)

    return Task(
        name=name,
        sigma=sigma,
        family=family,
        trained=trained,
        seed=seed,
        selection=drawn(SELECTION, settings.selection),
        test=drawn(TEST, settings.test),
    )


def stream_of(task: Task, stream: int) -> tuple[int, int, int]:
    """Seed of a stream of random numbers that belongs to a task."""
    return task.seed, stream, _code(task.sigma)


def _code(sigma: float) -> int:
    return round(sigma * 1000)
