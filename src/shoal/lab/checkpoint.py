"""A lab model's folder: its options, its weights, what was logged, and where training stands."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from shoal.config.lab import TrainConfig
from shoal.core import fingerprint
from shoal.core.errors import UsageError
from shoal.core.version import __version__
from shoal.lab.model import LabModel

CONFIG, WEIGHTS, LOG, STATE = "lab.json", "model.safetensors", "training.jsonl", "state.safetensors"

SHIPPED = Path(__file__).parent / "shipped"
"""The models that come with the package, one folder each."""


@dataclass(frozen=True)
class LabCheckpoint:
    """A trained lab model.

    Attributes:
        name: What it is called.
        config: How it was trained.
        model: The model, in eval mode.
        fingerprint: Of its weights and config.
    """

    name: str
    config: TrainConfig
    model: LabModel
    fingerprint: str


def shipped() -> list[str]:
    """Names of the models that come with the package."""
    return sorted(p.parent.name for p in SHIPPED.glob(f"*/{WEIGHTS}"))


def load_checkpoint(where: str | Path) -> LabCheckpoint:
    """Load a trained lab model.

    Args:
        where: A folder that `shoal lab train` wrote, or the name of a shipped model.

    Raises:
        UsageError: If there is none, it is not finished, or its files do not fit each other.
    """
    folder = _folder(where)
    config = read_config(folder)
    model = LabModel(config.model, config.seed)
    path = folder / WEIGHTS
    try:
        model.load_state_dict(load_file(path))
    except (SafetensorError, RuntimeError) as error:
        raise UsageError(
            f"{path} does not hold the weights that {CONFIG} describes: "
            f"{str(error).splitlines()[0]} Train it again."
        ) from error
    model.eval().requires_grad_(False)
    return LabCheckpoint(folder.name, config, model, fingerprint.of_files([path, folder / CONFIG]))


def _folder(where: str | Path) -> Path:
    folder = SHIPPED / str(where) if str(where) in shipped() else Path(where)
    if not (folder / CONFIG).is_file():
        raise UsageError(
            f"{where} is no lab model: neither a folder that shoal lab train wrote nor one of the "
            f"models that come with shoal ({', '.join(shipped()) or 'none'})."
        )
    if not (folder / WEIGHTS).is_file():
        raise UsageError(
            f"the lab model in {folder} is not trained to its end. Run the same shoal lab train "
            "again; it goes on where it stopped."
        )
    return folder


def read_config(folder: Path) -> TrainConfig:
    """The options of a lab model's folder.

    Raises:
        UsageError: If its config cannot be read.
    """
    path = folder / CONFIG
    try:
        values = json.loads(path.read_text("utf-8"))["train"]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is no config of a lab model ({error}).") from error
    return TrainConfig.read(values)


def config_text(config: TrainConfig, command: str) -> str:
    """What `lab.json` holds.

    Args:
        config: The options.
        command: The command that trains the same again.
    """
    values = {"shoal": __version__, "command": command, "train": config.model_dump(mode="json")}
    return json.dumps(values, indent=2) + "\n"


def replace_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> None:
    """Write tensors and texts, replacing the file in one step."""
    temporary = path.with_name(path.name + ".tmp")
    plain = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    temporary.write_bytes(save(plain, {k: str(v) for k, v in metadata.items()}))
    temporary.replace(path)
