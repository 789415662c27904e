"""Steps that several commands share."""

from pathlib import Path
from typing import Any

from shoal.cli.options import overlay
from shoal.config.run import RunConfig, read_yaml


def quiet_libraries() -> None:
    """Turn off the progress bars of transformers; call after it can be imported."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()


def merged(model: str | None, options: dict[str, Any], file: Path | None = None) -> RunConfig:
    """The config of a run: flags over the file over defaults."""
    values = overlay(read_yaml(file) if file is not None else {}, options)
    if model is not None:
        values["model"] = model
    return RunConfig.read(values)
