"""Editing a config for the blocks that stay."""

import copy
import math
from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedConfig

from shoal.core.errors import UnsupportedModelError
from shoal.core.layout import Layout
from shoal.core.mask import Mask, Part
from shoal.models.discover import depth_field, text_config
from shoal.surgery import rules
from shoal.surgery.fields import (
    is_stored,
    origins,
    overrides,
    own_name,
    read,
    sparse_blocks,
    stored_lists,
)
from shoal.surgery.periodic import fit, marked
from shoal.surgery.refusals import check_expressed, check_request

__all__ = ["attention_mix", "check_prunable", "prune_config"]


def prune_config(config: PreTrainedConfig, target: Mask | Layout) -> PreTrainedConfig:
    """A copy of a config that asks for the blocks of the pruned model.

    Args:
        config: The dense model's config. It is not changed.
        target: What to remove, or what the pruned model's blocks are made of; a mask stands for its
            layout with what is left of neighbours fused.

    Returns:
        A config of the same class, with every field edited that depends on the blocks.

    Raises:
        UsageError: If the mask is for another depth, or removes everything.
        UnsupportedModelError: If no config of this class can say what is asked, with the reason.
    """
    layout = target if isinstance(target, Layout) else Layout.of(target)
    check_request(config, layout)
    pruned = copy.deepcopy(config)
    text = text_config(pruned)
    edits = _edits(text, layout)
    own = overrides(text)
    # Reading a field that is overridden somewhere raises, and keys past the new depth do too.
    text.per_layer_config = None
    for name, value in edits.items():
        setattr(text, name, value)
    _set_depth(text, len(layout))
    if own:
        text.per_layer_config = _own_settings(own, layout)
    check_expressed(config, pruned, layout)
    return pruned


def _own_settings(own: dict[int, dict[str, Any]], layout: Layout) -> dict[int, dict[str, Any]]:
    """The settings that single blocks have of their own, each from where its branch comes from."""
    merged = {
        new: {
            name: value
            for part, old in ((Part.ATTN, slot.attn), (Part.MLP, slot.mlp))
            for name, value in own.get(old, {}).items()
            if rules.side(name) is part
        }
        for new, slot in enumerate(layout.slots)
    }
    return {new: settings for new, settings in merged.items() if settings}


def check_prunable(config: PreTrainedConfig, target: Mask | Layout) -> None:
    """Refuse a mask that no checkpoint of this model type can express, by the rules that are known.

    Reads no weights and builds nothing, so that it can be asked about every mask of a search.
    `prune_config` makes sure in addition that the config class agrees.

    Raises:
        UsageError: If the mask is for another depth, or removes everything.
        UnsupportedModelError: If it cannot be expressed, with the reason.
    """
    check_request(config, target if isinstance(target, Layout) else Layout.of(target))


def attention_mix(config: PreTrainedConfig, mask: Mask) -> dict[str, int]:
    """How many blocks of each kind stay; a kind with 0 has disappeared completely.

    Args:
        config: The dense model's config.
        mask: The blocks to remove.

    Returns:
        Kind -> kept blocks; empty where all blocks are of one unnamed kind.
    """
    text = text_config(config)
    kinds: Sequence[str] = read(text, "layer_types") or read(text, "layers_block_type") or ()
    if len(kinds) != mask.depth:
        return {}
    kept = [kinds[i] for i in mask.kept]
    return {kind: kept.count(kind) for kind in dict.fromkeys(kinds)}


def _edits(text: PreTrainedConfig, layout: Layout) -> dict[str, Any]:
    """The new value of every field that depends on the blocks, from the untouched config."""
    depth = layout.mask.depth
    edits: dict[str, Any] = {}
    for name, values in stored_lists(text).items():
        if len(values) != depth:
            raise UnsupportedModelError(
                f"{text.model_type}: {name} has {len(values)} entries for {depth} blocks."
            )
        edits[name] = type(values)(values[i] for i in origins(layout, name))
    for name, first in rules.INDEXED.items():
        indices = read(text, name)
        if isinstance(indices, list | tuple):
            named = {i - first for i in indices}
            edits[name] = [n + first for n, i in enumerate(origins(layout, name)) if i in named]
    for name in rules.LEADING:
        count = read(text, name)
        if isinstance(count, int):
            edits[name] = sum(i < count for i in origins(layout, name))
    for name in rules.TRAILING:
        count = read(text, name)
        if isinstance(count, int):
            edits[name] = sum(i >= depth - count for i in origins(layout, name))
    for sections in rules.SECTIONS:
        edits |= _sections(text, sections, layout)
    for names, marks in marked(text, depth).items():
        edits |= fit(names, [marks[i] for i in origins(layout, names[0])]) or {}
    for name in rules.PREDICTORS:
        if isinstance(read(text, name), int):
            edits[name] = 0
    edits |= _made_explicit(text, layout)
    scale = read(text, "scale_depth")
    if isinstance(scale, int | float):
        edits["scale_depth"] = scale * math.sqrt(len(layout) / depth)
    return {own_name(text, name): value for name, value in edits.items() if is_stored(text, name)}


def _set_depth(text: PreTrainedConfig, depth: int) -> None:
    name = depth_field(text)
    if is_stored(text, name):
        setattr(text, name, depth)
    if name == "num_blocks":
        text.num_hidden_layers = depth
    if name == "num_layers_per_stack":
        # One cache slot for every time that a block is run.
        text.num_hidden_layers = depth * text.H_cycles * (text.L_cycles + 1)


def _sections(text: PreTrainedConfig, names: Sequence[str], layout: Layout) -> dict[str, int]:
    """The lengths of consecutive sections of the blocks, counted over those that stay."""
    counts = [read(text, name) for name in names]
    if not all(isinstance(count, int) for count in counts):
        return {}
    edits, start = {}, 0
    for name, count in zip(names, counts, strict=True):
        edits[name] = sum(start <= i < start + count for i in origins(layout, name))
        start += count
    return edits


def _made_explicit(text: PreTrainedConfig, layout: Layout) -> dict[str, Any]:
    """Periodic schedules, written out block by block."""
    edits: dict[str, Any] = {}
    if isinstance(read(text, "decoder_sparse_step"), int):
        sparse = sparse_blocks(text, layout.mask.depth) or []
        edits["decoder_sparse_step"] = 1
        edits["mlp_only_layers"] = [new for new, i in enumerate(layout.mlp) if not sparse[i]]
    if read(text, "attention_types"):
        kinds = read(text, "attention_layers")
        edits["attention_types"] = [[[kinds[i]], 1] for i in layout.attn]
    pattern = read(text, "block_types")
    if isinstance(pattern, list | tuple):
        edits["block_types"] = [pattern[i % len(pattern)] for i in layout.attn]
    return edits
