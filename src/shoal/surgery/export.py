"""Exporting a pruned model: from a loaded one, or from files without loading anything."""

from collections.abc import Sequence
from pathlib import Path

from transformers import PreTrainedConfig

from shoal.core.errors import UnsupportedModelError, UsageError
from shoal.core.mask import Mask
from shoal.core.plan import Plan
from shoal.models.dense import DenseModel
from shoal.models.load import load_config, quantisation
from shoal.models.skeleton import skeleton
from shoal.models.source import Source
from shoal.models.sublayers import needed
from shoal.surgery.card import Result
from shoal.surgery.checking import Check, Checked, as_check, check_files, choose_way
from shoal.surgery.config import check_prunable
from shoal.surgery.fusing import Format, layout_for
from shoal.surgery.memory import shallow_model
from shoal.surgery.staging import check_target
from shoal.surgery.structure import check_written
from shoal.surgery.verify import check_reload
from shoal.surgery.weights import Weights
from shoal.surgery.writing import ExportReport, Job, write

__all__ = ["ExportReport", "check_exportable", "export", "export_files"]


def export(
    dense: DenseModel,
    mask: Mask,
    out: Path,
    *,
    plan: Plan | None = None,
    format: Format = "auto",
    overwrite: bool = False,
    max_shard_bytes: int = 5 * 10**9,
    check: Check | bool = "full",
    results: Sequence[Result] | None = None,
) -> ExportReport:
    """Write a loaded model without the removed blocks as a folder that transformers loads.

    The folder appears only when it is complete and, with a full check, verified by loading it.
    Tensors of a checkpoint's files are copied byte for byte, whatever dtype the model was loaded
    in; those of GGUF files and model objects are written as they are in memory.

    Args:
        dense: The dense model. It is not changed.
        mask: The blocks to remove.
        out: The folder to write. Missing parents are made.
        plan: Written beside the weights and into the model card.
        format: How sub-layers are written, see `shoal.surgery.fusing`.
        overwrite: Replace an existing folder, once the new one is verified.
        max_shard_bytes: Largest number of tensor bytes in one weight file.
        check: How much of the result is checked, see `shoal.surgery.checking`; `auto` is full.
        results: Measurements for the model card.

    Returns:
        What was written and measured.

    Raises:
        UsageError: If the folder must not be written, the mask does not fit, or the disk is full.
        UnsupportedModelError: If the model type cannot express the mask.
        VerificationError: If the result is not the masked dense model.
    """
    out, asked = Path(out).expanduser(), as_check(check)
    check_target(out, dense.source.folder, overwrite=overwrite)
    check_exportable(dense, mask, plan, format)
    layout = layout_for(mask, format, needed(dense, mask))
    shallow = shallow_model(dense, layout)

    def verify(folder: Path, weights: Weights) -> Checked:
        if asked == "none":
            return Checked("none", "as asked")
        if asked == "structure":
            check_written(folder, shallow, weights.tensors, weights.spare, packed=False)
            return Checked("structure", "as asked")
        measured = check_reload(folder, dense, layout, spare=weights.spare)
        return Checked("full", "run beside the model in memory", measured)

    return write(Job(dense, shallow, layout, out, plan, results, max_shard_bytes), verify)


def export_files(
    source: Source,
    mask: Mask,
    out: Path,
    *,
    config: PreTrainedConfig | None = None,
    plan: Plan | None = None,
    format: Format = "auto",
    overwrite: bool = False,
    max_shard_bytes: int = 5 * 10**9,
    check: Check | bool = "auto",
    device: str = "auto",
    dtype: str = "auto",
    results: Sequence[Result] | None = None,
) -> ExportReport:
    """Write a checkpoint without the removed blocks from files alone: the model is not loaded.

    Tensors go from file to file, one at a time, so the size of the model does not matter; only a
    full check runs it. Quantised checkpoints are carried over as they are.

    Args:
        source: The dense model's files: safetensors, or a pickled checkpoint.
        mask: The blocks to remove; whole ones.
        out: The folder to write. Missing parents are made.
        config: The dense model's config, when it was read before.
        plan: Written beside the weights and into the model card.
        format: How sub-layers would be written.
        overwrite: Replace an existing folder, once the new one is verified.
        max_shard_bytes: Largest number of tensor bytes in one weight file.
        check: How much of the result is checked, see `shoal.surgery.checking`.
        device: Where a full check runs.
        dtype: The dtype of a full check.
        results: Measurements for the model card.

    Returns:
        What was written and measured.

    Raises:
        UsageError: If the folder must not be written, files are missing or damaged, the mask does
            not fit, or the disk is full.
        UnsupportedModelError: If the model type cannot express the mask, parts of blocks are to
            go, or the settings of a quantisation cannot be renumbered.
        VerificationError: If the result is not the masked dense model.
    """
    out, asked = Path(out).expanduser(), as_check(check)
    check_target(out, source.folder, overwrite=overwrite)
    config = config or load_config(source, quantised=True)
    layout = layout_for(mask, format)
    if not layout.whole:
        raise UnsupportedModelError(
            f"{mask} removes parts of blocks, and which tensors those are is found by running the "
            f"blocks, for which {source.id} has to be loaded. Export from a loaded model."
        )
    check_plan(mask, plan)
    check_prunable(config, layout)
    dense = skeleton(source, config)
    shallow = shallow_model(dense, layout)
    way = choose_way(asked, dense, shallow, config, device, dtype)

    def verify(folder: Path, weights: Weights) -> Checked:
        return check_files(folder, way, dense, config, layout, shallow, weights)

    return write(Job(dense, shallow, layout, out, plan, results, max_shard_bytes), verify)


def check_exportable(
    dense: DenseModel, mask: Mask, plan: Plan | None = None, format: Format = "auto"
) -> None:
    """Refuse what cannot be exported, before any work.

    Raises:
        UsageError: If mask, plan and model do not belong together.
        UnsupportedModelError: If the model type cannot express the mask, or is quantised.
    """
    check_plan(mask, plan)
    if quantisation(dense.config) is not None:
        raise UnsupportedModelError(
            f"{dense.source.id} is quantised ({quantisation(dense.config)}), and a quantised model "
            "is not written from memory. Export its files: shoal export PLAN --model FOLDER "
            "--any-model --out DIR."
        )
    check_prunable(dense.config, layout_for(mask, format, needed(dense, mask)))


def check_plan(mask: Mask, plan: Plan | None) -> None:
    """Refuse a plan that is not the mask's.

    Raises:
        UsageError: If they differ.
    """
    if plan is not None and plan.mask != mask:
        raise UsageError(f"the plan removes {plan.mask}, but {mask} was asked for.")
