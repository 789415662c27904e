"""Writing the pruned model as an ordinary checkpoint, verified before it is published."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from shoal.core.errors import UnsupportedModelError, UsageError
from shoal.core.mask import Mask, Site
from shoal.core.plan import Plan
from shoal.models.dense import DenseModel
from shoal.models.source import EMBEDDED, Source
from shoal.surgery.card import Result, model_card
from shoal.surgery.config import check_prunable
from shoal.surgery.fusing import Format, layout_for, name_of
from shoal.surgery.memory import shallow_model
from shoal.surgery.sidecars import copy_sidecars, licence_of
from shoal.surgery.staging import check_space, check_target, staged
from shoal.surgery.verify import check_reload
from shoal.surgery.weights import plan_weights

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExportReport:
    """What an export wrote and how it was checked.

    Attributes:
        folder: The checkpoint.
        route: `file` if the tensors came from the source's files, `memory` if from the model.
        kept: The blocks that stayed, as numbered in the dense model.
        removed: The blocks and sub-layers that went.
        format: How it was written: `stock`, `fuse` or `stock-zeroed`.
        blocks: What each block of the result is made of.
        zeroed: Sub-layers whose output is zeroed: they are in the files and still cost time.
        parameters_before: Parameters of the dense model.
        parameters_after: Parameters of the pruned model.
        bytes: Size of the weight files.
        shards: Number of weight files.
        max_logit_difference: Largest difference from the masked dense model; None if unchecked.
        checks: Everything that the reload check measured.
        seconds: Wall time.
    """

    folder: Path
    route: str
    kept: tuple[int, ...]
    removed: tuple[str, ...]
    format: str
    blocks: tuple[str, ...]
    zeroed: tuple[str, ...]
    parameters_before: int
    parameters_after: int
    bytes: int
    shards: int
    max_logit_difference: float | None
    checks: dict[str, float | bool]
    seconds: float


def export(
    dense: DenseModel,
    mask: Mask,
    out: Path,
    *,
    plan: Plan | None = None,
    format: Format = "auto",
    overwrite: bool = False,
    max_shard_bytes: int = 5 * 10**9,
    check: bool = True,
    results: Sequence[Result] | None = None,
) -> ExportReport:
    """Write the model without the removed blocks as a folder that transformers loads.

    The folder appears only when it is complete and, with `check`, verified by loading it.
    Tensors of a safetensors checkpoint are copied byte for byte, whatever dtype the model was
    loaded in; those of GGUF files and model objects are written as they are in memory.

    Args:
        dense: The dense model. It is not changed.
        mask: The blocks to remove.
        out: The folder to write. Missing parents are made.
        plan: Written beside the weights and into the model card.
        format: How sub-layers are written, see `shoal.surgery.fusing`.
        overwrite: Replace an existing folder, once the new one is verified.
        max_shard_bytes: Largest number of tensor bytes in one weight file.
        check: Load the result and compare it with the masked dense model.
        results: Measurements for the model card.

    Returns:
        What was written and measured.

    Raises:
        UsageError: If the folder must not be written, the mask does not fit, or the disk is full.
        UnsupportedModelError: If the model type cannot express the mask.
        VerificationError: If the result is not the masked dense model.
    """
    begin = time.perf_counter()
    out = Path(out).expanduser()
    check_target(out, dense.source.folder, overwrite=overwrite)
    check_exportable(dense, mask, plan, format)
    if max_shard_bytes < 1:
        raise UsageError(f"max_shard_bytes must be at least 1, got {max_shard_bytes}.")
    layout = layout_for(mask, format)
    shallow = shallow_model(dense, layout)
    before, after = _parameters(dense.module), _parameters(shallow)
    weights = plan_weights(dense, layout, shallow, max_shard_bytes)
    check_space(out, weights.needed)
    checks: dict[str, float | bool] = {}
    with staged(out, weights.needed) as folder:
        weights.write(folder)
        copy_sidecars(dense, folder)
        if not (folder / "generation_config.json").is_file() and dense.module.can_generate():
            dense.module.generation_config.save_pretrained(folder)
        if plan is not None:
            # Where a model lies on this machine is nobody else's business.
            ref = plan.model.model_copy(update={"id": _public_id(dense.source, plan.model.id)})
            plan.model_copy(update={"model": ref}).save(folder / "shoal_plan.json")
        text = model_card(
            _public_name(dense.source),
            dense.source.revision,
            mask,
            plan,
            before,
            after,
            results,
            licence=licence_of(dense.source.folder),
            notes=_notes(dense.source),
        )
        (folder / "README.md").write_text(text, encoding="utf-8")
        if check:
            checks = check_reload(folder, dense, layout)
        files = sorted(folder.glob("*.safetensors"))
        size, shards = sum(file.stat().st_size for file in files), len(files)
    log.info("wrote %s: %d of %d blocks", out, len(layout), mask.depth)
    return ExportReport(
        folder=out,
        route=weights.route,
        kept=mask.kept,
        removed=tuple(map(str, mask)),
        format=name_of(layout),
        blocks=tuple(map(str, layout.slots)),
        zeroed=tuple(str(Site(s.attn, s.zeroed)) for s in layout.zeroed if s.zeroed),
        parameters_before=before,
        parameters_after=after,
        bytes=size,
        shards=shards,
        max_logit_difference=checks.get("max_logit_difference"),
        checks=checks,
        seconds=time.perf_counter() - begin,
    )


def check_exportable(
    dense: DenseModel, mask: Mask, plan: Plan | None = None, format: Format = "auto"
) -> None:
    """Refuse what cannot be exported, before any work.

    Raises:
        UsageError: If mask, plan and model do not belong together.
        UnsupportedModelError: If the model type cannot express the mask, or is quantised.
    """
    if plan is not None and plan.mask != mask:
        raise UsageError(f"the plan removes {plan.mask}, but {mask} was asked for.")
    if getattr(dense.config, "quantization_config", None) is not None:
        raise UnsupportedModelError(
            f"{dense.source.id} is quantised, and the settings of its quantisation name blocks by "
            "index, which is not renumbered yet. Prune the unquantised model and quantise after."
        )
    check_prunable(dense.config, layout_for(mask, format))


def _public_id(source: Source, name: str) -> str:
    """The name of a model without the folder that it lies in."""
    known = source.kind == "hub" or name in EMBEDDED
    return name if known else Path(name).name


def _public_name(source: Source) -> str:
    """A name for the model card that tells nothing of this machine's folders."""
    if source.id in EMBEDDED:
        return EMBEDDED[source.id][2]
    return source.id if source.kind == "hub" else Path(source.id).name


def _notes(source: Source) -> tuple[str, ...]:
    if not source.gguf:
        return ()
    return (
        f"The weights were taken from `{source.gguf}` and dequantised, so they are not exactly "
        "those of the original model.",
    )


def _parameters(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
