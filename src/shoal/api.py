"""The same stages in Python, from pruning to measuring why it helps or not.

Example:
    >>> import shoal
    >>> result = shoal.prune("smollm2-135m", objective="margin", task="arc_easy", remove=5,
    ...                      data_dir="embedded", out="pruned")       # doctest: +SKIP
    >>> print(result.search.plan.mask)                                # doctest: +SKIP

A transformers model object is accepted wherever a name is; pass its tokenizer with it.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from shoal.config.diagnosis import DiagnosisConfig
from shoal.config.geometry import GeometryConfig
from shoal.config.objectives import ExactMatchConfig
from shoal.config.run import RunConfig
from shoal.core.errors import UnsupportedModelError, UsageError, unknown_name
from shoal.core.mask import Mask
from shoal.core.plan import Plan
from shoal.evaluation.tasks import TaskSettings
from shoal.models.discover import depth_of
from shoal.models.load import load_config, load_dense, quantisation
from shoal.models.source import Source, resolve
from shoal.pipeline.diagnosis.run import DiagnosisResult, run_diagnosis
from shoal.pipeline.geometry.run import GeometryResult, run_geometry
from shoal.pipeline.listener import Listener
from shoal.pipeline.measure import Report, report
from shoal.pipeline.plans import PlanLike, as_plan, check_plan, mask_for
from shoal.pipeline.prepare import Model, load_report, locate, prepare, tokenisation
from shoal.pipeline.prune import PruneResult, run_prune
from shoal.pipeline.score import ScoreResult, run_score
from shoal.pipeline.search import SearchResult, run_search
from shoal.surgery.export import ExportReport, export_files
from shoal.surgery.export import export as write
from shoal.surgery.foreign import NEMOTRON, Foreign, is_foreign, write_file, write_nemotron
from shoal.surgery.fusing import layout_for
from shoal.surgery.interop import FORMATS
from shoal.surgery.skipping import pruned_model

F = TypeVar("F", bound=Callable[..., Any])


def _keeps_mode(stage: F) -> F:
    """Put every part of model objects back into the mode that it was in."""

    @wraps(stage)
    def run(model: Model, *args: Any, **kwargs: Any) -> Any:
        given = [m for m in (model, *args, *kwargs.values()) if isinstance(m, PreTrainedModel)]
        modes = [(part, part.training) for m in given for part in m.modules()]
        try:
            return stage(model, *args, **kwargs)
        finally:
            for part, training in modes:
                part.training = training

    return cast(F, run)


@_keeps_mode
def prune(
    model: Model,
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    listener: Listener | None = None,
    **options: Any,
) -> PruneResult:
    """Search for blocks to remove, write the checkpoint, and measure what was lost.

    Args:
        model: A hub id, folder, GGUF file or embedded name; or a model object.
        tokenizer: The tokenizer of a model object.
        listener: Hears of the progress.
        **options: The options of `RunConfig`, e.g. `objective="margin"`, `remove=7`, `out="dir"`.

    Returns:
        The plan, the checkpoint and the measurements.

    Raises:
        UsageError: If the request is wrong; before any long work.
    """
    model = _object(model, tokenizer)
    request = prepare(_config(model, options), None if isinstance(model, str) else model)
    return run_prune(request, listener or Listener())


@_keeps_mode
def search(
    model: Model,
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    listener: Listener | None = None,
    **options: Any,
) -> SearchResult:
    """Search for blocks to remove; arguments as for `prune`.

    Returns:
        The plan, which also lies in the run folder, and what the search took.
    """
    model = _object(model, tokenizer)
    named = None if isinstance(model, str) else model
    request = prepare(_config(model, options), named, report=False)
    return run_search(request, listener or Listener())


@_keeps_mode
def score(
    model: Model,
    scores: str | Sequence[str],
    *,
    windows: Sequence[int] = (),
    out: str | Path | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    listener: Listener | None = None,
    **options: Any,
) -> ScoreResult:
    """Score every block without removing any; the lowest are needed least.

    Args:
        model: A hub id, folder, GGUF file or embedded name; or a model object.
        scores: Names of state scores, e.g. `"block_influence,angular"`.
        windows: Lengths of the angular windows that are wanted.
        out: Folder for scores.json and the figures; `scores/<model>` by default.
        tokenizer: The tokenizer of a model object.
        listener: Hears of the progress.
        **options: The options of `RunConfig` that say on which data.

    Returns:
        The scores, and where they were written.

    Raises:
        UsageError: If the request is wrong.
    """
    names = scores.replace(",", " ").split() if isinstance(scores, str) else scores
    model = _object(model, tokenizer)
    return run_score(
        _config(model, options),
        names,
        model=None if isinstance(model, str) else model,
        windows=windows,
        out=None if out is None else Path(out),
        listener=listener,
    )


@_keeps_mode
def load(
    model: Model,
    *,
    plan: PlanLike | None = None,
    device: str = "auto",
    dtype: str = "auto",
    any_model: bool = False,
) -> PreTrainedModel:
    """Load a model, without the blocks that a plan removes.

    The result is an ordinary transformers model that generates with a KV cache. It can be saved
    unless it skips a single attention or MLP, which no config can say.
    A model object passed in is not changed; the pruned one shares its tensors.

    Args:
        model: A hub id, folder, GGUF file or embedded name; or a model object.
        plan: What to remove; None loads the dense model.
        device: `auto`, `cpu`, `cuda`, `cuda:N` or `mps`.
        dtype: `auto`, `float32`, `bfloat16` or `float16`.
        any_model: Apply a plan that was made for another checkpoint of the same depth.

    Raises:
        UsageError: If the plan was made for another model.
    """
    dense = load_dense(model, device=device, dtype=dtype)
    if plan is None:
        return dense.module
    return pruned_model(dense, mask_for(dense, plan, any_model=any_model))


@_keeps_mode
def export(
    model: Model,
    plan: PlanLike,
    out: str | Path,
    *,
    device: str = "auto",
    dtype: str = "auto",
    overwrite: bool = False,
    any_model: bool = False,
    **options: Any,
) -> ExportReport:
    """Write an ordinary checkpoint without the blocks that a plan removes, and check it.

    From files that lose whole blocks the tensors are copied without loading the model; how much of
    the result is checked, and why, stands in the report.

    Args:
        model: A hub id, folder, GGUF file or embedded name; or a model object.
        plan: What to remove.
        out: The folder to write.
        device: Where a full check runs.
        dtype: The dtype of a full check, and of weights that come from memory or a GGUF file.
        overwrite: Replace an existing folder.
        any_model: Apply a plan that was made for another checkpoint of the same depth.
        **options: Further arguments of `shoal.surgery.export.export_files`: `check`, `format`,
            `max_shard_bytes`, `results`.

    Raises:
        UsageError: If the plan was made for another model, or the folder exists.
        VerificationError: If the written checkpoint is not the masked model.
    """
    read = as_plan(plan, _depth(model))
    mask = read if isinstance(read, Mask) else read.mask
    if not mask.removed:
        raise UsageError("the plan removes nothing, so there is nothing to write.")
    options |= {"plan": read if isinstance(read, Plan) else None, "overwrite": overwrite}
    if isinstance(model, str):
        source = resolve(model)
        if source.gguf is None:
            config = load_config(source, quantised=True)
            check_plan(read, depth_of(config), source.id, source.fingerprint, any_model=any_model)
            if layout_for(mask, options.get("format", "auto")).whole:
                options |= {"config": config, "device": device, "dtype": dtype}
                return export_files(source, mask, Path(out), **options)
            if quantisation(config) is not None:
                raise UnsupportedModelError(
                    f"{source.id} is quantised ({quantisation(config)}), and quantised files can "
                    f"lose whole blocks only, but {mask} removes parts of blocks."
                )
        dense = load_dense(source, device=device, dtype=dtype)
    else:
        dense = load_dense(model, device=device, dtype=dtype)
    check_plan(read, dense.depth, dense.source.id, lambda: dense.fingerprint, any_model=any_model)
    return write(dense, mask, Path(out), **options)


def export_for(
    tool: str,
    model: Model,
    plan: PlanLike,
    out: str | Path,
    *,
    overwrite: bool = False,
    any_model: bool = False,
    max_shard_bytes: int = 5 * 10**9,
) -> Foreign:
    """Write a plan for another tool: a file that it reads, or a checkpoint in its form.

    Args:
        tool: `mergekit`, `evopress` or `nemotron-nas`.
        model: A hub id, folder, GGUF file or embedded name; or a model object.
        plan: What to remove.
        out: The file or folder to write.
        overwrite: Replace what is there.
        any_model: Apply a plan that was made for another checkpoint of the same depth.
        max_shard_bytes: Largest number of tensor bytes in one weight file.

    Raises:
        UsageError: If the tool's form cannot say this mask, or the output exists.
        UnsupportedModelError: If the tool cannot run such a model.
    """
    if not is_foreign(tool):
        raise unknown_name("format", tool, FORMATS)
    found, config = locate(model)
    source = found if isinstance(found, Source) else None
    read = as_plan(plan, depth_of(config))
    mask = read if isinstance(read, Mask) else read.mask
    if source is not None:
        check_plan(read, depth_of(config), source.id, source.fingerprint, any_model=any_model)
    if tool != NEMOTRON:
        name = model if isinstance(model, str) else str(config.name_or_path or "MODEL")
        return write_file(tool, mask, Path(out), model=name, config=config, overwrite=overwrite)
    needs_weights = source is None or source.gguf is not None
    dense = load_dense(found) if needs_weights else None
    return write_nemotron(
        mask,
        Path(out),
        config=config,
        source=dense.source if dense is not None else source or Source("object", "", None),
        dense=dense,
        overwrite=overwrite,
        max_shard_bytes=max_shard_bytes,
    )


@_keeps_mode
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
    model = _object(model, tokenizer)
    listener = listener or Listener()
    listener.stage("Loading the model")
    dense = load_dense(model, device=config.device, dtype=config.dtype)
    read = None if plan is None else as_plan(plan, dense.depth)
    masks = {} if read is None else {"pruned": mask_for(dense, read, any_model=any_model)}
    settings = TaskSettings(
        tokenisation(config), config.batch_tokens, config.length, limit, _generation(config, read)
    )
    return report(dense, masks, data, settings, listener, speed=speed, seed=config.seed)


@_keeps_mode
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
        _object(model, tokenizer),
        plan=plan,
        against=None if against is None else _object(against, tokenizer),
        any_model=any_model,
        listener=listener,
    )


@_keeps_mode
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
        _object(model, tokenizer),
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


def _depth(model: Model) -> int:
    """Number of blocks of a model, quantised or not."""
    if isinstance(model, str):
        return depth_of(load_config(resolve(model), quantised=True))
    return depth_of(model.config)


def _object(model: Model, tokenizer: PreTrainedTokenizerBase | None) -> Model:
    """Join a model object with its tokenizer."""
    if isinstance(model, PreTrainedModel):
        return load_dense(model, tokenizer=tokenizer)
    return model


def _config(model: Model, options: dict[str, Any]) -> RunConfig:
    return RunConfig.read({**options, **({"model": model} if isinstance(model, str) else {})})
