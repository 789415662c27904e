"""How much of a written checkpoint is checked, and how: chosen before it is written.

* `full`: the structure, and the written model run beside the masked dense model: logits, and
  generation with and without a KV cache. Both are held in memory, or, where they do not fit, left
  on the disk and read tensor by tensor while they run.
* `structure`: config, names, shapes and sizes of all tensors, by what transformers would load.
* `none`: nothing.
* `auto`: full where the model can be run here, else structure.
"""

import logging
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from shoal.core.errors import UnsupportedModelError, UsageError, VerificationError, unknown_name
from shoal.core.layout import Layout
from shoal.models.available import free_memory
from shoal.models.dense import DenseModel
from shoal.models.device import pick_device, pick_dtype
from shoal.models.load import checkpoint_dtype, load_dense, quantisation
from shoal.models.offload import can_offload, load_offloaded
from shoal.surgery.structure import check_written
from shoal.surgery.verify import check_reload
from shoal.surgery.weights import Weights

log = logging.getLogger(__name__)

Check: TypeAlias = Literal["auto", "full", "structure", "none"]
"""What may be asked for."""

Done: TypeAlias = Literal["full", "structure", "none"]
"""What may have been done."""

MARGIN = 10**9
"""Bytes kept free beside the two models, for activations and whatever else runs."""

_FROM_DISK: dict[str, Any] = {"batch_sizes": (2,), "new_tokens": 2}
"""Fewer passes where each of them reads all weights."""


@dataclass(frozen=True)
class Checked:
    """What was checked.

    Attributes:
        check: How much.
        note: How, and why not more.
        measured: What a full check measured.
    """

    check: Done
    note: str
    measured: dict[str, float | bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Way:
    """How a checkpoint will be checked.

    Attributes:
        check: How much.
        note: How, and why not more.
        device: Where the models run in a full check.
        dtype: In which dtype; None for that of the files.
        from_disk: Whether their weights stay on the disk.
    """

    check: Done
    note: str
    device: torch.device = torch.device("cpu")  # noqa: RUF009 - a constant
    dtype: torch.dtype | None = None
    from_disk: bool = False


def as_check(check: str | bool) -> Check:
    """A check by its name; True is the full one, False none.

    Raises:
        UsageError: If there is no such check.
    """
    if isinstance(check, bool):
        return "full" if check else "none"
    for known in get_args(Check):
        if check == known:
            return known
    raise unknown_name("check", check, get_args(Check))


def choose_way(
    check: Check,
    dense: DenseModel,
    shallow: PreTrainedModel,
    config: PreTrainedConfig,
    device: str = "auto",
    dtype: str = "auto",
) -> Way:
    """Decide how the checkpoint of a model that is not loaded will be checked.

    Args:
        check: What is asked for.
        dense: The dense model without weights.
        shallow: The pruned model without weights.
        config: The config of the dense model's files.
        device: Where models should run.
        dtype: In which dtype.

    Raises:
        UsageError: If a quantised model is to be checked in full, or device or dtype are unknown.
    """
    where, own = pick_device(device), checkpoint_dtype(config)
    chosen = pick_dtype(dtype, where, own)
    method = quantisation(config)
    if method is not None:
        if check == "full":
            raise UsageError(
                f"{dense.source.id} is quantised ({method}) and quantised models are not run here, "
                "so there is no full check. Use --check structure."
            )
        return Way(
            "none" if check == "none" else "structure",
            f"quantised ({method}), so the model was not run: names, shapes and sizes of all "
            "tensors were checked",
        )
    if check in ("none", "structure"):
        return Way(check, "as asked")
    needed = sum(_bytes(model, chosen) for model in (dense.module, shallow)) + MARGIN
    cpu = torch.device("cpu")
    for place in dict.fromkeys((where, cpu) if device == "auto" else (where,)):
        if needed <= free_memory(place):
            return Way("full", f"run in memory on {place.type}", place, chosen)
    sizes = f"dense and pruned model need {needed / 1e9:.1f} GB, {free_memory(where) / 1e9:.1f} GB"
    if can_offload() and not dense.source.pickled and device in ("auto", "cpu"):
        note = f"run with the weights on the disk, because {sizes} are free"
        return Way("full", note, cpu, None if dtype == "auto" else chosen, from_disk=True)
    if check == "full":
        return Way("full", f"run in memory on {where.type}", where, chosen)
    hint = "" if can_offload() else ", or install accelerate to run them from the disk"
    return Way(
        "structure",
        f"names, shapes and sizes of all tensors; the model was not run, because {sizes} are free. "
        f"To run it anyway use --check full{hint}",
    )


def _bytes(model: PreTrainedModel, dtype: torch.dtype) -> int:
    return sum(p.numel() for p in model.parameters()) * dtype.itemsize


def check_files(
    folder: Path,
    way: Way,
    dense: DenseModel,
    config: PreTrainedConfig,
    layout: Layout,
    shallow: PreTrainedModel,
    weights: Weights,
) -> Checked:
    """Check a written folder against a dense model that is not loaded.

    Args:
        folder: The checkpoint.
        way: How.
        dense: The dense model without weights.
        config: The config of its files.
        layout: What the blocks of the pruned model are made of.
        shallow: The pruned model without weights.
        weights: What was to be written.

    Raises:
        VerificationError: If the folder is not the masked dense model.
    """
    if way.check == "none":
        return Checked("none", way.note)
    packed = quantisation(config) is not None
    spare = weights.spare
    check_written(folder, shallow, weights.tensors, spare, packed=packed)
    if way.check == "structure":
        return Checked("structure", way.note)
    if not way.from_disk:
        name = str(way.dtype).removeprefix("torch.")
        loaded = load_dense(dense.source, device=str(way.device), dtype=name, config=config)
        return Checked("full", way.note, check_reload(folder, loaded, layout, spare=spare))
    log.info("checking %s, %s", folder, way.note)
    try:
        # Inside the folder, so that nothing is left elsewhere if the process is killed.
        with tempfile.TemporaryDirectory(prefix=".offload-", dir=folder) as room:
            before, after = Path(room, "dense"), Path(room, "pruned")
            runnable = load_offloaded(dense, before, way.dtype)
            measured = check_reload(
                folder, runnable, layout, offload=after, spare=spare, **_FROM_DISK
            )
        return Checked("full", way.note, measured)
    except (VerificationError, UsageError, UnsupportedModelError):
        raise
    except (RuntimeError, ValueError, KeyError, AttributeError, TypeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        return Checked(
            "structure",
            "names, shapes and sizes of all tensors; the model does not fit into memory and could "
            f"not be run from the disk ({reason}). To run it in memory anyway use --check full",
        )
