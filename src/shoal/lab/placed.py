"""The geometry of a lab model on one of its tasks."""

from typing import Any

import torch

from shoal.core.mask import Mask
from shoal.core.plan import ModelRef
from shoal.geometry.linear_part import linear_part
from shoal.geometry.points import interventions_part, notes
from shoal.geometry.profile_part import profiles_part
from shoal.geometry.records import Geometry
from shoal.geometry.settings import InterventionSettings
from shoal.geometry.sides import Side
from shoal.geometry.signatures import signatures
from shoal.geometry.stack import Stack
from shoal.lab.checkpoint import LabCheckpoint
from shoal.lab.losses import SquaredErrors
from shoal.lab.stack import CLASSES, lab_stack, lab_texts
from shoal.lab.study import Placed
from shoal.lab.tasks import Task, sigma_of


def place(
    checkpoint: LabCheckpoint,
    trained: Task,
    task: Task,
    mask: Mask,
    *,
    functions: int,
    skip: int,
    seed: int,
) -> Placed:
    """Take the geometry of a model on a shifted task, with the mask that was chosen for it.

    Args:
        checkpoint: The model.
        trained: The task of training.
        task: The shifted one.
        mask: What is removed; with the dense mask nothing is intervened on.
        functions: Test functions of each that are read.
        skip: First predictions that do not count.
        seed: Seed of intervals and controls.
    """
    stack = lab_stack(checkpoint.model)
    id, ood = (_side(stack, t, functions, skip) for t in (trained, task))
    wanted = mask if mask else None
    settings = InterventionSettings(seed=seed, singles=True)
    with torch.inference_mode():
        profiles, changes = profiles_part(stack, id, ood, wanted, seed)
        linear = linear_part(stack, id, ood, CLASSES, seed=seed)
        points = interventions_part(stack, id, ood, wanted, settings, CLASSES) if wanted else ()
    told: dict[str, Any] = {"functions": functions, "skip": skip, "seed": seed}
    return Placed(
        model=checkpoint.name,
        task=task.name,
        sigma=task.sigma,
        trained=sigma_of(task.trained),
        geometry=Geometry(
            model=ModelRef(
                id=f"lab:{checkpoint.name}", revision=None, fingerprint=checkpoint.fingerprint
            ),
            depth=stack.depth,
            width=checkpoint.config.width,
            id=trained.name,
            ood=task.name,
            metric={"id": id.metric, "ood": ood.metric},
            mask=wanted,
            settings=told,
            profiles=profiles,
            changes=changes,
            linear=linear,
            signatures=signatures(linear, wanted),
            points=points,
            notes=notes(stack, wanted, settings) if wanted else (),
        ),
    )


def _side(stack: Stack, task: Task, functions: int, skip: int) -> Side:
    prompts = task.test.prompts.rows(0, functions)
    losses = SquaredErrors(stack, [prompts], skip)
    return Side(texts=lab_texts(prompts, task.name), losses=losses, metric=losses.metric)
