"""The folder of a run: its resolved config, plan, evaluations and environment."""

import json
import os
import platform
import re
import sys
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from shoal.config.run import RunConfig
from shoal.core import fingerprint
from shoal.core.errors import UsageError
from shoal.core.version import __version__

CONFIG, PLAN, STORE, ENVIRONMENT, TRACE = (
    "config.yaml",
    "plan.json",
    "evaluations.sqlite",
    "environment.json",
    "trace.jsonl",
)

PACKAGES = ("torch", "transformers", "safetensors", "numpy", "pydantic", "tokenizers", "datasets")

# Where something is written, or how fast, does not change what is found.
FREE = {"out", "overwrite", "run_dir", "store", "evaluate", "evaluate_limit"}
FREE |= {"batch_tokens", "cache_memory", "budget_evaluations", "budget_minutes"}


def default_folder(config: RunConfig, model_name: str) -> Path:
    """Where a run is kept when no folder is named."""
    tasks = [Path(term.calibration).stem for term in config.terms]
    parts = [Path(model_name).name, config.objective.name, *tasks, config.search.name]
    parts += [f"remove-{config.remove}"] if config.remove is not None else []
    asked = {k: v for k, v in resolved(config, model_name).items() if k not in FREE}
    # Other options get another folder.
    parts.append(fingerprint.of_json(asked)[:6])
    return Path("runs") / re.sub(r"[^\w.%-]+", "-", "-".join(parts))


def resolved(config: RunConfig, model_name: str) -> dict[str, Any]:
    """The config with everything written out, ready for YAML."""
    values = config.model_dump(mode="json", exclude_none=True)
    if len(config.terms) == 1:
        values["task"] = config.terms[0].calibration
    return {"model": model_name, **{k: v for k, v in values.items() if k != "model"}}


def open_folder(folder: Path, config: RunConfig, model_name: str) -> None:
    """Create a run folder, or check that the one there belongs to the same run.

    Raises:
        UsageError: If it holds a run with other options.
    """
    claim(folder, resolved(config, model_name), free=FREE, results=(PLAN, STORE))


def claim(
    folder: Path,
    wanted: dict[str, Any],
    *,
    free: Set[str] = frozenset(),
    results: Sequence[str],
    kind: str = "run",
    flag: str = "--run-dir",
) -> None:
    """Create the folder of some work, or check that the one there belongs to the same work.

    Args:
        folder: The folder.
        wanted: All options, ready for YAML; they are written into it.
        free: Options that may differ.
        results: Files without which nothing was done there yet.
        kind: What the work is called.
        flag: How a user chooses the folder.

    Raises:
        UsageError: If it holds such work with other options, or something else.
    """
    check_claim(folder, wanted, free=free, results=results, kind=kind, flag=flag)
    make_folder(folder, flag)
    replace_text(folder / CONFIG, yaml.safe_dump(wanted, sort_keys=False, allow_unicode=True))
    replace_text(folder / ENVIRONMENT, json.dumps(environment(), indent=2) + "\n")


def make_folder(folder: Path, flag: str) -> None:
    """Create a folder, with those that it lies in.

    Raises:
        UsageError: If it cannot be.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"the folder {folder} cannot be made: {error.strerror}. Choose another {flag}."
        ) from error


def check_claim(
    folder: Path,
    wanted: dict[str, Any],
    *,
    free: Set[str] = frozenset(),
    results: Sequence[str],
    kind: str = "run",
    flag: str = "--run-dir",
) -> None:
    """Check that `claim` would not refuse the folder; nothing is written."""
    path = folder / CONFIG
    if path.is_file():
        there = _read(path, flag)
        if not any((folder / name).exists() for name in results):
            # Nothing was done under those options.
            there = wanted
        keys = sorted((set(there) | set(wanted)) - free)
        differing = [k for k in keys if there.get(k) != wanted.get(k)]
        if differing:
            key = differing[0]
            raise UsageError(
                f"{folder} holds another {kind}: its {key} is {there.get(key)!r}, not "
                f"{wanted.get(key)!r}. Choose another {flag}, or delete that folder."
            )
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists and is not the folder of a {kind}. Choose another.")


@contextmanager
def alone_in(folder: Path, *, shared: bool = True) -> Iterator[None]:
    """Hold a run folder for this process; the hold ends with the process, however it ends.

    Args:
        folder: The folder.
        shared: Whether what is known may be shared by a store.

    Raises:
        UsageError: If another process is running in the folder.
    """
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        store = "; what is known may be shared with --store" if shared else ""
        raise UsageError(
            f"another process is running in {folder}. Wait for it, or choose another folder{store}."
        ) from error
    try:
        yield
    finally:
        lock.release()


def environment() -> dict[str, Any]:
    """Versions, machine and command: what a reader needs to run this again."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "shoal": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "packages": versions,
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }


def environment_texts() -> dict[str, str]:
    """Versions and machine for a record of results, which the command is no part of."""
    here = environment()
    packages = {name: str(version) for name, version in here.pop("packages").items()}
    here.pop("command")
    return {name: str(value) for name, value in here.items()} | packages


def _read(path: Path, flag: str) -> dict[str, Any]:
    try:
        there = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        there = None
    if not isinstance(there, dict):
        raise UsageError(f"{path} is damaged. Delete it, or choose another {flag}.")
    return there


def replace_text(path: Path, text: str) -> None:
    """Write a file in one step."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
