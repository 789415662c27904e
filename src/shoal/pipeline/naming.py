"""What models, plans and folders of results are called."""

import re
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig

from shoal.core import fingerprint
from shoal.core.mask import Mask
from shoal.core.plan import Plan
from shoal.models.dense import DenseModel
from shoal.pipeline.plans import PlanLike
from shoal.pipeline.prepare import Model


def model_name(model: Model, config: PreTrainedConfig) -> str:
    """What a model is called."""
    if isinstance(model, str):
        return model
    if isinstance(model, DenseModel):
        return model.source.id
    return str(config.name_or_path or type(model).__name__)


def plan_name(plan: PlanLike | None, read: Plan | Mask) -> str:
    """What a plan is called: its path, else its mask.

    Args:
        plan: The plan as it was given.
        read: The plan that was read.
    """
    if isinstance(plan, str | Path):
        return str(plan)
    return str(read if isinstance(read, Mask) else read.mask)


def results_folder(root: str, parts: Sequence[str], wanted: dict[str, Any], free: Set[str]) -> Path:
    """Where results go when no folder is named; other options get another folder.

    Args:
        root: The folder of all results of this kind.
        parts: What to name it by: names and paths, of which the last parts are taken.
        wanted: All options.
        free: Options that change no result.
    """
    asked = {name: value for name, value in wanted.items() if name not in free}
    names = [*map(_last, parts), fingerprint.of_json(asked)[:6]]
    return Path(root) / re.sub(r"[^\w.%-]+", "-", "-".join(names)).strip("-")


def _last(part: str) -> str:
    path = Path(part)
    # A file called plan.json says less than the folder that it lies in.
    return path.parent.name if path.name == "plan.json" and path.parent.name else path.name
