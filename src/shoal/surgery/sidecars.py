"""What lies beside the weights: tokenizer, generation settings, licence, model card metadata."""

import re
import shutil
from pathlib import Path
from typing import Any

import yaml
from transformers import PreTrainedTokenizerBase

from shoal.models.source import Source

TOKENIZER = (
    "tokenizer*",
    "*.model",
    "vocab*",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template*",
    "additional_chat_templates",
)
"""Files that make up a tokenizer and its chat templates."""

OTHERS = (
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
    "*LICENSE*",
    "*LICENCE*",
    "NOTICE*",
    "USE_POLICY*",
)
"""Further files that are carried over as they are."""


def copy_sidecars(
    source: Source, tokenizer: PreTrainedTokenizerBase | None, folder: Path
) -> list[str]:
    """Carry over everything but weights, config and model card.

    A tokenizer is copied file by file where the source has those files, and written from memory
    where it has not (GGUF, model objects).

    Args:
        source: Where the dense model came from.
        tokenizer: Its tokenizer in memory, if it has one.
        folder: Where to.

    Returns:
        The names of the files and folders copied.
    """
    copied: list[str] = []
    if source.folder is not None:
        patterns = OTHERS if source.gguf else (*TOKENIZER, *OTHERS)
        for path in sorted({path for pattern in patterns for path in source.folder.glob(pattern)}):
            _copy(path, folder / path.name)
            copied.append(path.name)
    if tokenizer is not None and not any(n.startswith("tokenizer") for n in copied):
        tokenizer.save_pretrained(folder)
    return copied


def _copy(path: Path, target: Path) -> None:
    # Files of a hub snapshot are links into a cache, so the content is copied, not the link.
    if path.is_dir():
        shutil.copytree(path, target, dirs_exist_ok=True)
    else:
        shutil.copyfile(path, target)


def front_matter(source: Path | None) -> dict[str, Any]:
    """The YAML metadata of a folder's model card; empty where there is none that can be read."""
    if source is None or not (source / "README.md").is_file():
        return {}
    text = (source / "README.md").read_text(encoding="utf-8", errors="replace")
    match = re.match(r"---\s*\n(.*?)\n---\s*(\n|$)", text, re.DOTALL)
    if match is None:
        return {}
    try:
        value = yaml.safe_load(match[1])
    except yaml.YAMLError:
        return {}
    return value if isinstance(value, dict) else {}


def licence_of(source: Path | None) -> dict[str, str]:
    """The licence fields of a folder's model card: `license`, `license_name`, `license_link`."""
    fields = front_matter(source)
    names = ("license", "license_name", "license_link")
    return {name: str(fields[name]) for name in names if fields.get(name)}
