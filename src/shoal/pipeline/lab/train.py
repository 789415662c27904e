"""The training stage: a lab model's folder, filled step by step, that survives being killed."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from shoal.config.lab import PRESETS, TrainConfig
from shoal.core.errors import UsageError
from shoal.lab.checkpoint import (
    CONFIG,
    LOG,
    STATE,
    WEIGHTS,
    LabCheckpoint,
    config_text,
    load_checkpoint,
    read_config,
    replace_tensors,
)
from shoal.lab.train import LogRow, Training
from shoal.models.device import pick_device
from shoal.pipeline.figures import can_draw
from shoal.pipeline.folder import alone_in, environment, make_folder, replace_text
from shoal.pipeline.listener import Listener

SAVE_SECONDS = 60.0
"""Wall time between saved states, about what a kill loses."""

LOG_LINES = 100
"""Lines of the log of a whole training, about."""

TIMED_STEPS = 10
"""Steps that are timed at full length for the estimate."""


@dataclass(frozen=True)
class TrainResult:
    """A trained model and where it lies.

    Attributes:
        checkpoint: The model.
        log: The training log.
        folder: The folder.
    """

    checkpoint: LabCheckpoint
    log: tuple[LogRow, ...]
    folder: Path


def run_training(
    config: TrainConfig,
    folder: Path,
    *,
    device: str = "auto",
    listener: Listener | None = None,
) -> TrainResult:
    """Train a lab model, or go on with one.

    Args:
        config: The options.
        folder: Where it is written; a finished one of the same options is loaded.
        device: Where it is trained.
        listener: Hears of the progress.

    Raises:
        UsageError: If the folder holds something else, or another process trains in it.
        NotFiniteError: If training diverges.
    """
    listener = listener or Listener()
    _check_folder(folder, config)
    where = pick_device(device)
    seconds = 0.0 if (folder / WEIGHTS).exists() else _estimate(config, where)
    make_folder(folder, "--out")
    with alone_in(folder, shared=False):
        if not (folder / CONFIG).exists():
            replace_text(folder / CONFIG, config_text(config, train_command(config, folder)))
            replace_text(folder / "environment.json", json.dumps(environment(), indent=2) + "\n")
        if not (folder / WEIGHTS).exists():
            _train(config, folder, where, seconds, listener)
        log = read_log(folder)
        _draw(log, config, folder, listener)
    return TrainResult(load_checkpoint(folder), log, folder)


def train_command(config: TrainConfig, folder: Path) -> str:
    """The command that trains the same again, with the nearest preset and what differs from it."""
    values = config.model_dump(mode="json")

    def differing(name: str) -> dict[str, Any]:
        theirs = PRESETS[name][1].model_dump(mode="json")
        return {k: v for k, v in values.items() if theirs[k] != v}

    name = min(PRESETS, key=lambda n: len(differing(n)))
    flags = [f"--{k.replace('_', '-')} {_quoted(v)}" for k, v in differing(name).items()]
    return " ".join(["shoal lab train", f"--preset {name}", *flags, f"--out {folder.name}"])


def _quoted(value: Any) -> str:
    text = str(value)
    return f'"{text}"' if "(" in text else text


def _check_folder(folder: Path, config: TrainConfig) -> None:
    if (folder / CONFIG).is_file():
        there = read_config(folder).model_dump(mode="json")
        wanted = config.model_dump(mode="json")
        differing = [k for k in wanted if there[k] != wanted[k]]
        if differing:
            key = differing[0]
            raise UsageError(
                f"{folder} holds a lab model with another {key}: {there[key]}, not {wanted[key]}. "
                "Choose another --out, or delete that folder."
            )
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists and is not the folder of a lab model. Choose another.")


def _train(
    config: TrainConfig, folder: Path, device: torch.device, seconds: float, listener: Listener
) -> None:
    training = Training(config, device)
    rows = _resume(training, folder)
    blocks = f"{config.layers} block{'s' * (config.layers > 1)}"
    listener.stage(f"Training {blocks} of width {config.width}")
    left = config.steps - training.step
    listener.note(f"about {seconds * left / 60:.1f} min for {left} steps, at full length")
    listener.work(config.steps)
    listener.advance(training.step)
    log_every = max(1, config.steps // LOG_LINES)
    saved, before = time.monotonic(), training.step
    for row in training.run(log_every):
        rows.append(row)
        listener.advance(row.step - before)
        before = row.step
        if time.monotonic() - saved > SAVE_SECONDS:
            _save(training, rows, folder)
            saved = time.monotonic()
    listener.done()
    _write_log(rows, folder)
    replace_tensors(folder / WEIGHTS, dict(training.model.named_parameters()), {})
    (folder / STATE).unlink(missing_ok=True)


def _estimate(config: TrainConfig, device: torch.device) -> float:
    """Seconds per step at full length, on a model that is thrown away."""
    timed = config.model_copy(
        update={"first_points": config.points, "steps": TIMED_STEPS, "warmup": TIMED_STEPS}
    )
    return next(Training(timed, device).run(TIMED_STEPS)).seconds / TIMED_STEPS


def _save(training: Training, rows: list[LogRow], folder: Path) -> None:
    _write_log(rows, folder)
    at = {"step": training.step, "seconds": training.seconds}
    replace_tensors(folder / STATE, training.state(), at)


def _resume(training: Training, folder: Path) -> list[LogRow]:
    """Bring a training to where it was; the lines of the log until there."""
    path = folder / STATE
    if not path.is_file():
        return []
    try:
        with safe_open(path, "pt") as file:
            at = file.metadata()
            training.restore(
                {name: file.get_tensor(name) for name in file.keys()},  # noqa: SIM118
                int(at["step"]),
                float(at["seconds"]),
            )
    except (SafetensorError, KeyError, ValueError) as error:
        raise UsageError(
            f"{path} cannot be read ({error}). Delete {folder} and train again."
        ) from error
    return [row for row in read_log(folder) if row.step <= training.step]


def read_log(folder: Path) -> tuple[LogRow, ...]:
    """The training log of a folder; empty where nothing was logged yet."""
    path = folder / LOG
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    return tuple(LogRow(**json.loads(line)) for line in lines)


def _write_log(rows: list[LogRow], folder: Path) -> None:
    replace_text(folder / LOG, "".join(json.dumps(asdict(row)) + "\n" for row in rows))


def _draw(log: tuple[LogRow, ...], config: TrainConfig, folder: Path, listener: Listener) -> None:
    if not log or not can_draw(listener):
        return
    from shoal.report.lab.training import loss_figure
    from shoal.report.style import save

    save(loss_figure(log, config), folder / "loss")
