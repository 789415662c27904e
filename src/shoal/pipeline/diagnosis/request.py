"""Everything about a diagnosis that can be refused before the weights are loaded."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel

from shoal.config.diagnosis import DiagnosisConfig
from shoal.core.errors import UsageError
from shoal.core.mask import Mask
from shoal.core.plan import Plan
from shoal.data import ChoiceSet
from shoal.engine.artifacts import check_place
from shoal.models.dense import DenseModel
from shoal.models.device import pick_device, pick_dtype
from shoal.models.discover import depth_of
from shoal.models.load import load_config
from shoal.models.source import Source, resolve
from shoal.objectives.build import Data
from shoal.pipeline.folder import check_claim, claim
from shoal.pipeline.naming import model_name, plan_name, results_folder
from shoal.pipeline.plans import PlanLike, as_plan
from shoal.pipeline.prepare import Model, load_report, locate

DIAGNOSIS, PAGE, PARTS, FIGURES = (
    "diagnosis.json",
    "diagnosis.html",
    "parts.sqlite",
    "figures",
)

FREE = frozenset({"out", "store", "batch_tokens", "thresholds"})
"""What changes no measurement."""

CLAIM: dict[str, Any] = {
    "free": FREE,
    "results": (DIAGNOSIS, PARTS),
    "kind": "diagnosis",
    "flag": "--out",
}
"""How a folder is claimed."""

PROMPT_PROBES = frozenset({"layerwise", "teacher_forced", "free_run"})
"""Probes that read prompts."""


@dataclass(frozen=True)
class Request:
    """A checked request.

    Attributes:
        config: The options.
        model: The dense model as an object, or the source of its files.
        hf_config: Its config.
        plan: What is removed; None where another checkpoint is compared.
        against: The other checkpoint; None where a plan is given.
        other_name: What the other model is called.
        folder: Where results go.
        wanted: All options, ready for YAML.
        prompts: What prompts are made of, where they are needed.
        choices: Multiple-choice tasks.
        texts: Texts to embed.
    """

    config: DiagnosisConfig
    model: PreTrainedModel | DenseModel | Source
    hf_config: PreTrainedConfig
    plan: Plan | Mask | None
    against: PreTrainedModel | DenseModel | Source | None
    other_name: str
    folder: Path
    wanted: dict[str, Any]
    prompts: Data | None
    choices: tuple[ChoiceSet, ...]
    texts: Data | None


def check_request(
    config: DiagnosisConfig, model: Model, plan: PlanLike | None, against: Model | None
) -> Request:
    """Check a request as far as is possible without weights, and load its data.

    Args:
        config: The options.
        model: The dense model.
        plan: What to remove from it.
        against: Or another checkpoint to compare it with.

    Raises:
        UsageError: If anything about the request is wrong.
    """
    if (plan is None) == (against is None):
        raise UsageError(
            "say what to compare the model with: --plan PLAN, or --against CHECKPOINT"
            + (", not both." if plan is not None else ".")
        )
    pick_dtype(config.dtype, pick_device(config.device), None)
    found, hf_config = locate(model)
    read = None if plan is None else as_plan(plan, depth_of(hf_config))
    other = None if against is None else locate_other(against)
    name = model_name(model, hf_config)
    other_name = plan_name(plan, read) if read is not None else _other_name(against, other)
    wanted = {"model": name, ("plan" if read is not None else "against"): other_name}
    if read is not None:
        mask = read if isinstance(read, Mask) else read.mask
        if mask.depth != depth_of(hf_config):
            raise UsageError(
                f"the plan is for a model with {mask.depth} blocks, but {name} has "
                f"{depth_of(hf_config)}."
            )
        wanted["mask"] = str(mask)
    wanted |= config.model_dump(mode="json", exclude={"model"})
    folder = config.out or results_folder("diagnoses", (name, other_name), wanted, FREE)
    check_claim(folder, wanted, **CLAIM)
    if config.store is not None:
        check_place(config.store)
    probes = set(config.probes)

    def load(name: str, limit: int) -> Data:
        return load_report(name, config.data_dir, limit)

    return Request(
        config=config,
        model=found,
        hf_config=hf_config,
        plan=read,
        against=other,
        other_name=other_name,
        folder=folder,
        wanted=wanted,
        prompts=load(config.prompts, config.num_prompts) if probes & PROMPT_PROBES else None,
        choices=_choices(config) if "choice" in probes else (),
        texts=load(config.texts, config.num_texts) if "retrieval" in probes else None,
    )


def claim_folder(request: Request) -> None:
    """Create the folder of a diagnosis, or check that the one there is of the same.

    Raises:
        UsageError: If it holds another diagnosis, or something else.
    """
    claim(request.folder, request.wanted, **CLAIM)


def locate_other(model: Model) -> PreTrainedModel | DenseModel | Source:
    """Find the other checkpoint, which may be quantised."""
    if not isinstance(model, str):
        return locate(model)[0]
    source = resolve(model)
    load_config(source, quantised=True)
    return source


def _choices(config: DiagnosisConfig) -> tuple[ChoiceSet, ...]:
    found = []
    for name in config.tasks:
        data = load_report(name, config.data_dir, config.items)
        if not isinstance(data, ChoiceSet):
            raise UsageError(
                f"--tasks {name} is no multiple-choice task, which the probe choice needs. "
                "See shoal ls tasks, or leave the probe out with --probes."
            )
        found.append(data)
    if not found:
        raise UsageError("name at least one task for the probe choice: --tasks arc_easy.")
    return tuple(found)


def _other_name(against: Model | None, found: Any) -> str:
    if isinstance(against, str):
        return against
    return model_name(found, found.config)
