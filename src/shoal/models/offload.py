"""Running a model whose weights stay on the disk: each is read when its module runs, then dropped.

Slow, because every pass reads the whole checkpoint, but the memory needed is that of a few tensors,
whatever the size of the model. The reading is accelerate's; safetensors are read where they lie.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from shoal.models.auto import auto_class
from shoal.models.dense import DenseModel

ON_DISK: dict[str, Any] = {"device_map": {"": "disk"}, "use_safetensors": True}
"""What tells transformers to leave the weights where they are."""


class OffloadedModel(DenseModel):
    """A dense model whose weights are on the disk and whose arithmetic is the processor's."""

    @property
    def device(self) -> torch.device:
        """Where inputs go; the weights themselves are nowhere until they are read."""
        return torch.device("cpu")


def can_offload() -> bool:
    """Whether the package that reads the weights is installed."""
    return find_spec("accelerate") is not None


def load_offloaded(
    dense: DenseModel, folder: Path, dtype: torch.dtype | None = None
) -> OffloadedModel:
    """The model of some files, runnable, with its weights left on the disk.

    Args:
        dense: The same model without weights.
        folder: Where tensors go that the files hold in another layout than the model.
        dtype: What it computes in; None takes the dtype of the files.
    """
    auto = auto_class(dense.config)
    with quiet():
        module = auto.from_pretrained(
            dense.source.folder, dtype=dtype or "auto", offload_folder=str(folder), **ON_DISK
        )
    return OffloadedModel(module, None, dense.source)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep accelerate's advice on devices to itself."""
    loggers = [logging.getLogger(n) for n in ("accelerate", "accelerate.big_modeling")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
