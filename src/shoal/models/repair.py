"""Configs that disagree with themselves: read as they were meant where that is clear, else refused.

A config states its depth once as a number and again as the length of every list with an entry per
block. Hand-edited files, and files that count multi-token prediction heads among the blocks, have
lists of other lengths, which transformers refuses or reads past the end of. The weights say which
of the two numbers is true.
"""

import json
import logging
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from safetensors import safe_open
from transformers import CONFIG_MAPPING, PreTrainedConfig

from shoal.core.errors import UsageError
from shoal.models.pickled import outline
from shoal.models.source import INDEX, PICKLED_INDEX, Source, weight_files

log = logging.getLogger(__name__)

PER_BLOCK = (
    "layer_types",
    "mlp_layer_types",
    "layers_block_type",
    "attn_layers",
    "attention_layers",
    "no_rope_layers",
    "indexer_types",
    "layer_rope_theta",
    "num_attention_heads_per_layer",
    "activation_sparsity_pattern",
    "intermediate_size",
    "moe_intermediate_size",
    "num_experts",
    "num_shared_expert",
    "moe_topk",
)
"""Lists with one entry per block. Some are plain numbers in most models; those are left alone."""

DEPTH_NAMES = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
"""What config files call the number of blocks."""

PREDICTORS = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers")
"""Counts of multi-token prediction heads, which files may number on from the last block."""

_FIRST_INDEX = re.compile(r"(?:^|\.)(\d+)\.")


def repaired_config(source: Source, *, tell: bool = True) -> PreTrainedConfig | None:
    """The config of a folder whose config.json disagrees with itself; None where it does not.

    Args:
        source: Where the model comes from.
        tell: Whether to say in one warning what disagreed, and how it was read.

    Raises:
        UsageError: If it is not clear how a config is meant, with what disagrees.
    """
    if source.folder is None or source.gguf or not (source.folder / "config.json").is_file():
        return None
    try:
        raw = json.loads((source.folder / "config.json").read_text(encoding="utf-8"))
    except ValueError:
        return None
    if not isinstance(raw, dict) or raw.get("model_type") not in CONFIG_MAPPING:
        return None
    parts = [part for part in (raw, *raw.values()) if isinstance(part, dict)]
    if all(_agrees(part) for part in parts):
        return None
    lengths = _block_counts(_tensor_names(source))
    notes = [note for part in parts for note in _repair(part, lengths, source.id)]
    if not notes:
        return None
    if tell:
        log.warning("%s: %s", source.id, "; ".join(notes))
    config: PreTrainedConfig = CONFIG_MAPPING[raw["model_type"]].from_dict(raw)
    config.name_or_path = str(source.folder)
    return config


def _agrees(part: dict[str, Any]) -> bool:
    depth = _depth(part)
    return all(len(values) == depth for _, values in _lists(part))


def _lists(part: dict[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """The lists with an entry per block; an empty one leaves the choice to the config class."""
    for name in PER_BLOCK:
        if isinstance(part.get(name), list) and part[name]:
            yield name, part[name]


def _depth(part: dict[str, Any]) -> int | None:
    found = [part[name] for name in DEPTH_NAMES if isinstance(part.get(name), int)]
    return found[0] if found else None


def _repair(part: dict[str, Any], lengths: frozenset[int], model: str) -> list[str]:
    """Make one part of a config agree with itself; returns what was done, in sentences."""
    lists = dict(_lists(part))
    if not lists:
        return []
    notes = []
    depth = _depth(part)
    if depth is None:
        # Types without such a number count the entries of a list.
        sizes = {len(values) for values in lists.values()}
        if len(sizes) == 1 and "num_hidden_layers" not in part:
            return []
        raise _unclear(model, "states no number of blocks, and its lists are of different lengths")
    heads = sum(part[name] for name in PREDICTORS if isinstance(part.get(name), int))
    confirmed = not lengths or bool({depth, depth + heads} & lengths)
    for name, values in lists.items():
        size = len(values)
        if size == depth:
            continue
        if size == 1:
            part[name] = values * depth
            notes.append(f"{name} has one entry for {depth} blocks, read as one that all share")
        elif size > depth and confirmed:
            part[name] = values[:depth]
            notes.append(
                f"{name} has {size} entries for {depth} blocks; the checkpoint has {depth}, so "
                f"the first {depth} entries are taken"
            )
        else:
            held = ", ".join(map(str, sorted(lengths))) or "unknown"
            raise _unclear(
                model,
                f"states {depth} blocks but {size} entries of {name}, and the weights hold lists "
                f"of {held}",
            )
    return notes


def _unclear(model: str, what: str) -> UsageError:
    return UsageError(
        f"{model}: the config disagrees with itself: it {what}. Correct config.json by hand."
    )


def _tensor_names(source: Source) -> list[str]:
    """The names of all tensors, from an index where there is one; none where there are no files."""
    folder = source.folder or Path()
    for index in (INDEX, PICKLED_INDEX):
        path = folder / index
        if path.is_file():
            return list(json.loads(path.read_text(encoding="utf-8"))["weight_map"])
    try:
        files = weight_files(folder)
    except UsageError:
        return []
    names: list[str] = []
    for file in files:
        names += outline(file) if file.suffix == ".bin" else _header(file)
    return names


def _header(file: Path) -> list[str]:
    with safe_open(file, framework="pt") as opened:
        return list(opened.keys())


def _block_counts(names: Iterable[str]) -> frozenset[int]:
    """The lengths of the outermost lists of modules that tensor names speak of."""
    last: dict[str, int] = {}
    for name in names:
        found = _FIRST_INDEX.search(name)
        if found:
            path = name[: found.start(1)]
            last[path] = max(last.get(path, 0), int(found[1]))
    return frozenset(index + 1 for index in last.values())
