"""Writing a checkpoint once everything about it is decided."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel

from shoal.core.errors import UsageError
from shoal.core.layout import Layout
from shoal.core.mask import Site
from shoal.core.plan import Plan
from shoal.models.dense import DenseModel
from shoal.models.load import load_config, quantisation
from shoal.models.source import EMBEDDED, Source
from shoal.surgery.card import Result, model_card
from shoal.surgery.checking import Checked, Done
from shoal.surgery.fusing import name_of
from shoal.surgery.sidecars import copy_sidecars, licence_of
from shoal.surgery.staging import check_space, staged
from shoal.surgery.weights import Weights, plan_weights

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
        checks: Everything that a full check measured.
        seconds: Wall time.
        check: How much was checked: `full`, `structure` or `none`.
        check_note: How, and why not more.
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
    check: Done = "full"
    check_note: str = ""


@dataclass(frozen=True)
class Job:
    """What is to be written.

    Attributes:
        dense: The dense model, with or without its weights.
        shallow: The pruned model, likewise.
        layout: What its blocks are made of.
        out: The folder to write.
        plan: Written beside the weights and into the model card.
        results: Measurements for the model card.
        limit: Largest number of tensor bytes in one weight file.
    """

    dense: DenseModel
    shallow: PreTrainedModel
    layout: Layout
    out: Path
    plan: Plan | None
    results: Sequence[Result] | None
    limit: int


def write(job: Job, verify: Callable[[Path, Weights], Checked]) -> ExportReport:
    """Write and check a folder that appears only when both are done.

    Args:
        job: What to write.
        verify: Checks the folder before it appears.

    Raises:
        UsageError: If the source's files are incomplete, or the disk is full.
        VerificationError: If the result is not what it should be.
    """
    begin = time.perf_counter()
    dense, layout, mask = job.dense, job.layout, job.layout.mask
    if job.limit < 1:
        raise UsageError(f"max_shard_bytes must be at least 1, got {job.limit}.")
    before, after = _parameters(dense.module), _parameters(job.shallow)
    weights = plan_weights(dense, layout, job.shallow, job.limit)
    check_space(job.out, weights.needed)
    with staged(job.out, weights.needed) as folder:
        weights.write(folder)
        copy_sidecars(dense.source, dense.tokenizer, folder)
        if not (folder / "generation_config.json").is_file() and dense.module.can_generate():
            dense.module.generation_config.save_pretrained(folder)
        if job.plan is not None:
            # Where a model lies on this machine is nobody else's business.
            ref = job.plan.model
            ref = ref.model_copy(update={"id": _public_id(dense.source, ref.id)})
            job.plan.model_copy(update={"model": ref}).save(folder / "shoal_plan.json")
        checked = verify(folder, weights)
        text = model_card(
            _public_name(dense.source),
            dense.source.revision,
            mask,
            job.plan,
            before,
            after,
            job.results,
            layout=layout,
            licence=licence_of(dense.source.folder),
            notes=_notes(dense.source, checked),
        )
        (folder / "README.md").write_text(text, encoding="utf-8")
        files = sorted(folder.glob("*.safetensors"))
        size, shards = sum(file.stat().st_size for file in files), len(files)
    log.info("wrote %s: %d of %d blocks", job.out, len(layout), mask.depth)
    return ExportReport(
        folder=job.out,
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
        max_logit_difference=checked.measured.get("max_logit_difference"),
        checks=checked.measured,
        seconds=time.perf_counter() - begin,
        check=checked.check,
        check_note=checked.note,
    )


def _public_id(source: Source, name: str) -> str:
    """The name of a model without the folder that it lies in."""
    known = source.kind == "hub" or name in EMBEDDED
    return name if known else Path(name).name


def _public_name(source: Source) -> str:
    """A name for the model card that tells nothing of this machine's folders."""
    if source.id in EMBEDDED:
        return EMBEDDED[source.id][2]
    return source.id if source.kind == "hub" else Path(source.id).name


def _notes(source: Source, checked: Checked) -> tuple[str, ...]:
    notes = []
    if source.gguf:
        notes.append(
            f"The weights were taken from `{source.gguf}` and dequantised, so they are not exactly "
            "those of the original model."
        )
    elif source.folder is not None:
        method = quantisation(load_config(source, quantised=True))
        if method is not None:
            notes.append(
                f"The weights are quantised ({method}). They were carried over as they are, and "
                "the settings of the quantisation name blocks by their new index. Loading needs "
                "the packages of the quantisation."
            )
    if checked.check == "structure":
        notes.append(
            "The names, shapes and sizes of all tensors were checked against the model that the "
            "config describes. The pruned model was not run."
        )
    elif checked.check == "none":
        notes.append("The written files were not checked.")
    return tuple(notes)


def _parameters(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
