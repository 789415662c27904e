"""Plans as users give them, checked against the model that they are applied to."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from shoal.core.errors import UsageError
from shoal.core.mask import Mask
from shoal.core.plan import Plan
from shoal.models.dense import DenseModel
from shoal.surgery.interop import read_any

PlanLike: TypeAlias = str | Path | Plan | Mask
"""A plan, its file, its run folder, a bare mask, or a file of another tool."""


def as_plan(plan: PlanLike, depth: int | None = None) -> Plan | Mask:
    """Read a plan from its path, or a mask from a file of another tool.

    Args:
        plan: A plan, a mask, a plan's file or run folder, or a file of mergekit, EvoPress or
            nemotron-nas.
        depth: Number of blocks of the dense model, which not every tool's file says.
    """
    if isinstance(plan, Plan | Mask):
        return plan
    path = Path(plan)
    return read_any(path, depth) if is_foreign_plan(path) else Plan.load(path)


def is_foreign_plan(path: Path) -> bool:
    """Whether a path is a file of another tool rather than a plan or a run folder."""
    return path.is_file() and (path.suffix != ".json" or path.name == "config.json")


def mask_for(dense: DenseModel, plan: PlanLike, *, any_model: bool = False) -> Mask:
    """The mask of a plan, checked against the model that it is to be applied to.

    Raises:
        UsageError: If the plan was made for another model.
    """
    plan = as_plan(plan, dense.depth)
    return check_plan(
        plan, dense.depth, dense.source.id, lambda: dense.fingerprint, any_model=any_model
    )


def check_plan(
    plan: Plan | Mask, depth: int, name: str, fingerprint: Callable[[], str], *, any_model: bool
) -> Mask:
    """The mask of a plan, checked against a model, loaded or not.

    Args:
        plan: The plan.
        depth: Number of blocks of the model.
        name: What the model is called.
        fingerprint: Takes its fingerprint, for which all its files are read.
        any_model: Apply a plan that was made for another checkpoint.

    Raises:
        UsageError: If the plan was made for another model.
    """
    mask = plan if isinstance(plan, Mask) else plan.mask
    if mask.depth != depth:
        raise UsageError(
            f"the plan is for a model with {mask.depth} blocks, but {name} has {depth}."
        )
    if isinstance(plan, Plan) and not any_model:
        found = fingerprint()
        if plan.model.fingerprint != found:
            raise UsageError(
                f"the plan was made for {plan.model.id} (fingerprint {plan.model.fingerprint}), "
                f"but {name} is another checkpoint ({found}). If you mean it, pass --any-model "
                "(any_model=True)."
            )
    return mask
