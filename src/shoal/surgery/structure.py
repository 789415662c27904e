"""Checking names and shapes without any weight: transformers' own loader, run on empty tensors.

The loader is given tensors of the meta device under the names that the files have. It renames,
splits and stacks them as it would real ones, so what it reports as missing, left over or of another
shape is what loading the files would report, whatever their layout and size.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightRenaming, apply_renamings
from transformers.modeling_utils import LoadStateDictConfig
from transformers.utils import logging as transformers_logging

from shoal.core.errors import UsageError, VerificationError
from shoal.models.skeleton import empty_model
from shoal.models.source import INDEX, Source
from shoal.surgery.stored import DTYPES, Stored, stored_tensors


@dataclass(frozen=True)
class Fit:
    """How tensors fit a model.

    Attributes:
        missing: Tensors of the model that the files do not give.
        unexpected: Tensors of the files that the model has no place for.
        mismatched: Tensors whose shape is not that of the model, with both shapes.
    """

    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    mismatched: tuple[str, ...]

    @property
    def wrong(self) -> str | None:
        """The first thing that keeps the model from being loaded; None where nothing does."""
        if self.missing:
            return f"{self.missing[0]} is missing ({len(self.missing)} such tensors)"
        if self.mismatched:
            return f"{self.mismatched[0]} ({len(self.mismatched)} such tensors)"
        return None


def fit_of(model: PreTrainedModel, tensors: Iterable[Stored]) -> Fit:
    """Load tensors into a model as transformers would, without their numbers.

    Args:
        model: A model on the meta device; its tensors are replaced by others of the meta device.
        tensors: What the files hold.
    """
    state = {
        t.name: torch.empty(t.shape, dtype=DTYPES.get(t.dtype, torch.uint8), device="meta")
        for t in tensors
    }
    settings: Any = LoadStateDictConfig(
        device_map={"": torch.device("meta")},
        weight_mapping=_anywhere(get_model_conversion_mapping(model)),
        dtype=model.dtype,
    )
    loader: Any = model
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        report, _ = loader._load_pretrained_model(model, state, None, settings)
    finally:
        if shown:
            transformers_logging.enable_progress_bar()
    # Takes from the missing what is tied to something that is there.
    loader.tie_weights(missing_keys=report.missing_keys, recompute_mapping=False)
    loader._adjust_missing_and_unexpected_keys(report)
    mismatched = [
        f"{name} is of shape {tuple(found)} instead of {tuple(wanted)}"
        for name, found, wanted in report.mismatched_keys
    ]
    mismatched += [f"{name} cannot be converted" for name in report.conversion_errors]
    return Fit(
        tuple(sorted(report.missing_keys)),
        tuple(sorted(report.unexpected_keys)),
        tuple(sorted(mismatched)),
    )


def _anywhere(mapping: list[Any]) -> list[Any]:
    """Conversions that stay on the device of their tensors, though some are made for the CPU."""
    for entry in mapping:
        if getattr(entry, "force_cpu", False):
            entry.force_cpu = False
    return mapping


def coverage_of(model: PreTrainedModel, tensors: Iterable[Stored]) -> Fit:
    """Whether every module with weights has tensors, where the names are a quantisation's own.

    Packed weights have other names and shapes than the model's (`qweight`, `weight.absmax`), but
    they lie under the names of their modules.
    """
    mapping = get_model_conversion_mapping(model)
    renamings = [entry for entry in mapping if isinstance(entry, WeightRenaming)]
    stems: set[str] = set()
    for tensor in tensors:
        parts = apply_renamings(tensor.name, renamings).split(".")
        stems.update(".".join(parts[:end]) for end in range(1, len(parts)))
    prefix = model.base_model_prefix + "."
    tied: dict[str, str] = dict(getattr(model, "all_tied_weights_keys", None) or {})
    missing = []
    for name in model.state_dict():
        owners = {name.rpartition(".")[0], tied.get(name, name).rpartition(".")[0]}
        # Files may lack or carry the prefix of the base model.
        owners |= {owner.removeprefix(prefix) for owner in owners} | {prefix + o for o in owners}
        if not owners & stems:
            missing.append(name)
    return Fit(tuple(missing), (), ())


def check_source(
    model: PreTrainedModel, tensors: Sequence[Stored], name: str, *, packed: bool
) -> tuple[str, ...]:
    """Refuse files that leave part of the dense model without weights.

    Args:
        model: The dense model on the meta device.
        tensors: What its files hold.
        name: What the user calls it.
        packed: Whether the tensors are those of a quantisation.

    Returns:
        The tensors that the model has no place for.

    Raises:
        UsageError: If tensors are missing or have other shapes than the config says.
    """
    fit = coverage_of(model, tensors) if packed else fit_of(model, tensors)
    if fit.wrong:
        raise UsageError(
            f"{name} does not hold the tensors that its config asks for: {fit.wrong}. The "
            "checkpoint is incomplete, or its config is another model's."
        )
    return fit.unexpected


def check_planned(
    model: PreTrainedModel, tensors: Sequence[Stored], spare: Iterable[str], *, packed: bool
) -> None:
    """Refuse to write tensors that are not exactly those of the pruned model.

    Args:
        model: The pruned model on the meta device.
        tensors: What is to be written.
        spare: Names that the dense files hold besides the model, by their new names.
        packed: Whether the tensors are those of a quantisation.

    Raises:
        VerificationError: If a tensor is missing, left over, or of another shape.
    """
    fit = coverage_of(model, tensors) if packed else fit_of(model, tensors)
    extra = sorted(set(fit.unexpected) - set(spare))
    wrong = fit.wrong or (f"{extra[0]} is left over ({len(extra)} such tensors)" if extra else None)
    if wrong:
        raise VerificationError(
            f"the pruned checkpoint would not load: {wrong}. Nothing is kept. Please report this "
            f"model type: {model.config.model_type}."
        )


def check_written(
    folder: Path,
    expected: PreTrainedModel,
    planned: Sequence[Stored] | None,
    spare: Iterable[str],
    *,
    packed: bool,
) -> None:
    """Read a written folder back, all but the weights, and compare it with what was meant.

    Args:
        folder: The checkpoint.
        expected: The pruned model.
        planned: The tensors that were to be written; None where transformers wrote them.
        spare: Names that the dense files hold besides the model, by their new names.
        packed: Whether the tensors are those of a quantisation.

    Raises:
        VerificationError: If anything differs.
    """
    try:
        found = stored_tensors(Source("folder", str(folder), folder))
    except UsageError as error:
        raise VerificationError(f"the written files are damaged: {error}") from error
    if planned is not None and _table(found) != _table(planned):
        raise VerificationError("the written files hold other tensors than were to be written.")
    index = folder / INDEX
    if index.is_file():
        listed = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        if listed != {t.name: t.file.name for t in found}:
            raise VerificationError(f"{INDEX} does not say where the written tensors are.")
    model = empty_model(AutoConfig.from_pretrained(folder))
    if _shapes(model) != _shapes(expected):
        raise VerificationError("the written config asks for another model than was to be written.")
    check_planned(model, found, spare, packed=packed)


def _table(tensors: Iterable[Stored]) -> dict[str, tuple[str, tuple[int, ...], int]]:
    return {t.name: (t.dtype, t.shape, t.size) for t in tensors}


def _shapes(model: PreTrainedModel) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in model.state_dict().items()}
