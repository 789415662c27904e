"""The in-context regression lab: train a model, run the experiments."""

from pathlib import Path
from typing import Any

from shoal.config.lab import TrainConfig, preset_named
from shoal.config.lab_run import LabRunConfig
from shoal.pipeline.lab.run import LabRunResult, run_lab
from shoal.pipeline.lab.train import TrainResult, run_training
from shoal.pipeline.listener import Listener


def train_lab(
    out: str | Path,
    *,
    preset: str = "small",
    device: str = "auto",
    listener: Listener | None = None,
    **options: Any,
) -> TrainResult:
    """Train an in-context regression transformer from scratch, or go on with one.

    Args:
        out: Folder to write to.
        preset: Sizes to start from: `tiny`, `small` or `paper`.
        device: `auto`, `cpu`, `cuda`, `cuda:N` or `mps`.
        listener: Hears of the progress.
        **options: The options of `TrainConfig`, e.g. `degree=2`, `coefficients="U(-5,5)"`.

    Returns:
        The model, its training log, and the folder.

    Raises:
        UsageError: If an option is wrong, or the folder holds something else.
        NotFiniteError: If training diverges.
    """
    base = preset_named(preset).model_dump(mode="json")
    config = TrainConfig.read(base | options)
    return run_training(config, Path(out), device=device, listener=listener)


def experiment_lab(*, listener: Listener | None = None, **options: Any) -> LabRunResult:
    """Remove blocks of lab models on shifted functions, beside controls, and answer the claims.

    Args:
        listener: Hears of the progress.
        **options: The options of `LabRunConfig`, e.g. `models=("my-model",)`, `shifts=(2, 5)`.

    Returns:
        The numbers, and the folder that they were written to.

    Raises:
        UsageError: If the request is wrong.
    """
    return run_lab(LabRunConfig.read(options), listener)
