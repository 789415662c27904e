"""Masks as files of other tools: written for them, and read from them."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.core.errors import UsageError
from shoal.core.mask import Mask
from shoal.core.plan import Plan
from shoal.surgery.interop.evopress import FILE_NAME, WORDS, from_evopress, to_evopress
from shoal.surgery.interop.mergekit import from_mergekit, to_mergekit
from shoal.surgery.interop.nemotron_nas import nemotron_config
from shoal.surgery.interop.nemotron_read import from_nemotron
from shoal.surgery.interop.text import parse_json

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

LARGEST_FILE = 4 * 2**20
"""Bytes beyond which a file is taken for weights by mistake and not read."""

_PLANS = ("plan.json", "shoal_plan.json")


@dataclass(frozen=True)
class Dense:
    """What a file may say of the dense model besides the mask.

    Attributes:
        model: Hub id or folder.
        dtype: Dtype of the weights, e.g. `bfloat16`.
        config: Its config; needed by `nemotron-nas`.
        per_layer_fields: Config fields that depend on the blocks, with what pruning does to each.
    """

    model: str
    dtype: str
    config: "PreTrainedConfig | None" = None
    per_layer_fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Format:
    """One tool's file.

    Attributes:
        name: What it is called here.
        file_name: What the tool calls the file.
        summary: One line on what it is.
        write: Makes the file's content from a mask.
        read: Makes a mask from the content and the depth of the dense model, None if unknown.
        matches: Whether a content is meant to be of this format, well-formed or not.
    """

    name: str
    file_name: str
    summary: str
    write: Callable[[Mask, Dense], str]
    read: Callable[[str, int | None], Mask]
    matches: Callable[[str], bool]


def read_any(path: Path, depth: int | None = None) -> Mask:
    """Read a mask from a file of any known tool, recognised by its content, or from a plan.

    Args:
        path: The file, or a folder that holds a plan or one such file under its usual name.
        depth: Number of blocks of the dense model, if known: a mask of another one is refused.

    Raises:
        UsageError: If there is no such file, it is none of the known ones, it is malformed, or it
            is for another depth.
    """
    path = Path(path)
    if path.is_dir():
        path = _inside(path)
    mask = _parse(path, _text(path), depth)
    if depth is not None and mask.depth != depth:
        raise UsageError(
            f"{path} is for {mask.depth} blocks, but the model has {depth}. Use the model that it "
            "was made for."
        )
    return mask


def _write_nemotron(mask: Mask, dense: Dense) -> str:
    if dense.config is None:
        raise UsageError(
            "the nemotron-nas form needs the dense model's config, and none was given."
        )
    return json.dumps(nemotron_config(dense.config, mask), indent=2) + "\n"


def _is_nemotron(text: str) -> bool:
    try:
        return "block_configs" in _json_keys(text)
    except UsageError:
        return False


def _is_evopress(text: str) -> bool:
    return text.lstrip().partition("\n")[0].strip() in WORDS


def _is_mergekit(text: str) -> bool:
    # By its look, not by parsing: the reader then says what is wrong with broken YAML.
    return re.search(r"^(slices|merge_method)\s*:", text, re.MULTILINE) is not None


def _json_keys(text: str) -> set[str]:
    value = parse_json(text) if text.lstrip().startswith("{") else {}
    return set(value)


def _inside(folder: Path) -> Path:
    names = [*_PLANS, *(known.file_name for known in FORMATS.values())]
    found = [folder / name for name in names if (folder / name).is_file()]
    if not found:
        raise UsageError(f"{folder} holds none of {', '.join(names)}. Give the file itself.")
    return found[0]


def _text(path: Path) -> str:
    if not path.is_file():
        raise UsageError(f"there is no file {path}.")
    if path.stat().st_size > LARGEST_FILE:
        raise UsageError(f"{path} is too large to be a mask: more than {LARGEST_FILE} bytes.")
    data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no text in UTF-8. {_known()}") from error
    if "\0" in text or not text.strip():
        what = "no text: it holds NUL bytes" if "\0" in text else "empty"
        raise UsageError(f"{path} is {what}. {_known()}")
    return text


def _parse(path: Path, text: str, depth: int | None) -> Mask:
    try:
        if "schema_version" in _json_keys(text):
            return Plan.load(path).mask
        for known in FORMATS.values():
            if known.matches(text):
                return known.read(text, depth)
    except UsageError as error:
        # Whichever reader it comes from, the message names the file.
        raise error if str(path) in str(error) else UsageError(f"{path}: {error}") from error
    raise UsageError(f"{path} is none of the files that state a mask. {_known()}")


def _known() -> str:
    listed = ", ".join(f"{known.name} ({known.file_name})" for known in FORMATS.values())
    return f"Known are {listed} and shoal's own plan.json."


FORMATS: dict[str, Format] = {
    known.name: known
    for known in (
        Format(
            "mergekit",
            "mergekit.yaml",
            "passthrough slices for mergekit-yaml; whole blocks only",
            lambda mask, dense: to_mergekit(mask, dense.model, dense.dtype, dense.per_layer_fields),
            from_mergekit,
            _is_mergekit,
        ),
        Format(
            "evopress",
            FILE_NAME,
            "EvoPress's list of what is dropped, one line per block",
            lambda mask, _: to_evopress(mask),
            from_evopress,
            _is_evopress,
        ),
        Format(
            "nemotron-nas",
            "config.json",
            "config of a Llama checkpoint without some sub-layers, as vLLM loads it",
            _write_nemotron,
            lambda text, depth: from_nemotron(parse_json(text), depth),
            _is_nemotron,
        ),
    )
}
"""Name -> format."""
