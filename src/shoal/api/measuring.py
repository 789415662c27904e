"""Measuring: evaluate, diagnose, compare the geometry of two tasks."""

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from shoal.api.objects import keeps_mode, with_tokenizer
from shoal.config.diagnosis import DiagnosisConfig
from shoal.config.geometry import GeometryConfig
from shoal.config.objectives import ExactMatchConfig
from shoal.config.run import RunConfig
from shoal.core.errors import UsageError
from shoal.core.mask import Mask
from shoal.core.plan import Plan
from shoal.evaluation.tasks import TaskSettings
from shoal.models.load import load_dense
from shoal.pipeline.diagnosis.run import DiagnosisResult, run_diagnosis
from shoal.pipeline.geometry.run import GeometryResult, run_geometry
from shoal.pipeline.listener import Listener
from shoal.pipeline.measure import Report, report
from shoal.pipeline.plans import PlanLike, as_plan, mask_for
from shoal.pipeline.prepare import Model, load_report, tokenisation


@keeps_mode
def evaluate(
    model: Model,
    tasks: str | Sequence[str],
    *,
    plan: PlanLike | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    speed: bool = True,
    listener: Listener | None = None,
    any_model: bool = False,
    **options: Any,
) -> Report:
    """Measure a model on tasks, and a pruned one beside it if a plan is given.

    Args:
        model: A hub id, folder, GGUF file or embedded name; or a model object.
        tasks: Task names or files.
        plan: Also measure the model without the blocks that it removes.
        tokenizer: The tokenizer of a model object.
        speed: Also time prefill and decode.
        listener: Hears of the progress.
        any_model: Apply a plan that was made for another checkpoint of the same depth.
        **options: `data_dir`, `limit`, `length`, `batch_tokens`, `bos`, `device`, `dtype`, `seed`;
            an `objective` exact_match says how answers are generated.

    Returns:
        The measurements, the dense model first.
    """
    limit = options.pop("limit", None)
    config = RunConfig.read({**options, "evaluate": tasks, "evaluate_limit": limit})
    if not config.evaluate:
        raise UsageError("name at least one task: --tasks wikitext2,arc_easy.")
    data = [load_report(t, config.data_dir, limit) for t in config.evaluate]
    model = with_tokenizer(model, tokenizer)
    listener = listener or Listener()
    listener.stage("Loading the model")
    dense = load_dense(model, device=config.device, dtype=config.dtype)
    read = None if plan is None else as_plan(plan, dense.depth)
    masks = {} if read is None else {"pruned": mask_for(dense, read, any_model=any_model)}
    settings = TaskSettings(
        tokenisation(config), config.batch_tokens, config.length, limit, _generation(config, read)
    )
    return report(dense, masks, data, settings, listener, speed=speed, seed=config.seed)


@keeps_mode
def diagnose(
    model: Model,
    *,
    plan: PlanLike | None = None,
    against: Model | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    listener: Listener | None = None,
    any_model: bool = False,
    **options: Any,
) -> DiagnosisResult:
    """Say what a pruned or otherwise compressed model is still good for, and why.

    Args:
        model: The dense model: a hub id, folder, GGUF file or embedded name; or a model object.
        plan: What is removed from it.
        against: Instead of a plan, any checkpoint or model object with the same vocabulary.
        tokenizer: The tokenizer of model objects.
        listener: Hears of the progress.
        any_model: Apply a plan that was made for another checkpoint of the same depth.
        **options: The options of `DiagnosisConfig`, e.g. `prompts="gsm8k"`, `steps=64`.

    Returns:
        The numbers and verdicts, and the folder that they were written to.

    Raises:
        UsageError: If the request is wrong, or the two models are the same.
    """
    return run_diagnosis(
        DiagnosisConfig.read(options),
        with_tokenizer(model, tokenizer),
        plan=plan,
        against=None if against is None else with_tokenizer(against, tokenizer),
        any_model=any_model,
        listener=listener,
    )


@keeps_mode
def compare_geometry(
    model: Model,
    *,
    id: str,
    ood: str,
    plan: PlanLike | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    listener: Listener | None = None,
    any_model: bool = False,
    **options: Any,
) -> GeometryResult:
    """Compare hidden states on an adapted and a shifted task, and what pruning does to them.

    Args:
        model: A hub id, folder, GGUF file, embedded name or `lab:NAME`; or a model object.
        id: The task that it is adapted to: a task, a file, or coefficients of the lab, `U(-1,1)`.
        ood: The shifted task.
        plan: What is removed; without it nothing is pruned and no intervention made.
        tokenizer: The tokenizer of a model object.
        listener: Hears of the progress.
        any_model: Apply a plan that was made for another checkpoint of the same depth.
        **options: The options of `GeometryConfig`, e.g. `items=64`, `remove=(9, 10)`.

    Returns:
        The numbers, and the folder that they were written to.

    Raises:
        UsageError: If the request is wrong.
        UnsupportedModelError: If the model has no single state per depth and position.
    """
    return run_geometry(
        GeometryConfig.read({**options, "id": id, "ood": ood}),
        with_tokenizer(model, tokenizer),
        plan=plan,
        any_model=any_model,
        listener=listener,
    )


def _generation(config: RunConfig, plan: Plan | Mask | None) -> ExactMatchConfig | None:
    """How answers are generated: as asked, or as in the search that found the plan."""
    if isinstance(config.objective, ExactMatchConfig):
        return config.objective
    found = plan.data.get("objective") if isinstance(plan, Plan) and plan.data else None
    if isinstance(found, dict) and found.get("name") == "exact_match":
        return ExactMatchConfig.read(found)
    return None
