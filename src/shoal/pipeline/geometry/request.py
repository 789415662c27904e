"""Everything about a geometry that can be refused before weights are loaded."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.config.geometry import GeometryConfig
from shoal.core.errors import UsageError
from shoal.core.mask import Mask
from shoal.core.plan import Plan
from shoal.engine.artifacts import check_place
from shoal.models.device import pick_device, pick_dtype
from shoal.pipeline.folder import check_claim, claim
from shoal.pipeline.geometry.laboratory import LabSource, check_lab, is_lab
from shoal.pipeline.geometry.language import LanguageSource, check_language
from shoal.pipeline.naming import plan_name, results_folder
from shoal.pipeline.plans import PlanLike, as_plan
from shoal.pipeline.prepare import Model

GEOMETRY, PAGE, PARTS, FIGURES = "geometry.json", "geometry.html", "parts.sqlite", "figures"

FREE = frozenset({"out", "store", "batch_tokens"})
"""What changes no measurement."""

CLAIM: dict[str, Any] = {
    "free": FREE,
    "results": (GEOMETRY, PARTS),
    "kind": "geometry",
    "flag": "--out",
}
"""How a folder is claimed."""


@dataclass(frozen=True)
class Request:
    """A checked request.

    Attributes:
        config: The options, with the lab's sizes for a lab model.
        source: The model's files and its tasks.
        plan: What is removed, or None.
        folder: Where results go.
        wanted: All options, ready for YAML.
    """

    config: GeometryConfig
    source: LanguageSource | LabSource
    plan: Plan | Mask | None
    folder: Path
    wanted: dict[str, Any]


def check_request(config: GeometryConfig, model: Model, plan: PlanLike | None) -> Request:
    """Check a request as far as is possible without weights, and load its data.

    Args:
        config: The options.
        model: The model; `lab:NAME` or a folder of `shoal lab train` is one of the lab.
        plan: What to remove from it.

    Raises:
        UsageError: If anything about the request is wrong.
    """
    pick_dtype(config.dtype, pick_device(config.device), None)
    source: LanguageSource | LabSource
    if is_lab(model):
        config = config.for_lab()
        source = check_lab(config, str(model))
    else:
        source = check_language(config, model)
    read = _removed(config, plan, source)
    config = _parts(config, read)
    mask = read if isinstance(read, Mask) or read is None else read.mask
    name = None if read is None else plan_name(plan, read)
    wanted = {"model": source.name, "plan": None if plan is None else name}
    wanted |= {"mask": None if mask is None else str(mask)}
    wanted |= config.model_dump(mode="json", exclude={"model"})
    named = [source.name, str(config.id), str(config.ood), *([name] if name else [])]
    folder = config.out or results_folder("geometry", named, wanted, FREE)
    check_claim(folder, wanted, **CLAIM)
    if config.store is not None:
        check_place(config.store)
    return Request(config, source, read, folder, wanted)


def claim_folder(request: Request) -> None:
    """Create the folder of a geometry, or check that the one there is of the same.

    Raises:
        UsageError: If it holds another geometry, or something else.
    """
    claim(request.folder, request.wanted, **CLAIM)


def _removed(
    config: GeometryConfig, plan: PlanLike | None, source: LanguageSource | LabSource
) -> Plan | Mask | None:
    """What is to be removed, seen to fit the model's depth."""
    if plan is not None and config.remove is not None:
        raise UsageError("say what is removed once: --plan PLAN or --remove 3,7, not both.")
    read: Plan | Mask | None = None
    if plan is not None:
        read = as_plan(plan, source.depth)
    elif config.remove is not None:
        read = Mask.parse(f"-[{config.remove}]", source.depth)
    if read is None:
        return None
    mask = read if isinstance(read, Mask) else read.mask
    if mask.depth != source.depth:
        raise UsageError(
            f"the plan is for a model with {mask.depth} blocks, but {source.name} has "
            f"{source.depth}."
        )
    if not mask.removed:
        raise UsageError(
            "the plan removes nothing, so there is no pruned model to look at. Leave it out, or "
            "name sites with --remove 3,7."
        )
    if mask.num_blocks == mask.depth:
        raise UsageError(f"{mask} removes every block, which leaves no model to look at.")
    return read


def _parts(config: GeometryConfig, plan: Plan | Mask | None) -> GeometryConfig:
    """The options, without the part that needs a plan where nobody asked for it by name."""
    if plan is not None or "interventions" not in config.parts:
        return config
    if "parts" in config.model_fields_set:
        raise UsageError(
            "interventions act on the sites that a plan removes: give --plan PLAN or --remove "
            "3,7, or ask for --parts profiles,surrogates."
        )
    kept = tuple(part for part in config.parts if part != "interventions")
    return config.model_copy(update={"parts": kept})
