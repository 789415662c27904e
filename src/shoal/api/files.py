"""From a plan to a model: load, export, export for other tools."""

from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from shoal.api.objects import keeps_mode
from shoal.core.errors import UnsupportedModelError, UsageError, unknown_name
from shoal.core.mask import Mask
from shoal.core.plan import Plan
from shoal.models.discover import depth_of
from shoal.models.load import load_config, load_dense, quantisation
from shoal.models.source import Source, resolve
from shoal.pipeline.plans import PlanLike, as_plan, check_plan, mask_for
from shoal.pipeline.prepare import Model, locate
from shoal.surgery.export import ExportReport, export_files
from shoal.surgery.export import export as write
from shoal.surgery.foreign import NEMOTRON, Foreign, is_foreign, write_file, write_nemotron
from shoal.surgery.fusing import layout_for
from shoal.surgery.interop import FORMATS
from shoal.surgery.skipping import pruned_model


@keeps_mode
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


@keeps_mode
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


def _depth(model: Model) -> int:
    """Number of blocks of a model, quantised or not."""
    if isinstance(model, str):
        return depth_of(load_config(resolve(model), quantised=True))
    return depth_of(model.config)
