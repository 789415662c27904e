"""What a model is made of, and whether and how it can be pruned."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig

from shoal.core.errors import UnsupportedModelError
from shoal.core.mask import Mask
from shoal.engine.selfcheck import choose_runner
from shoal.models.auto import auto_class
from shoal.models.branches import BlockBranches
from shoal.models.dense import DenseModel
from shoal.models.discover import find_blocks, text_config
from shoal.models.load import load_dense
from shoal.models.sublayers import random_batch
from shoal.pipeline.prepare import Model, locate
from shoal.pipeline.sites import BlockSites, mlp_kind, sites
from shoal.surgery.config import attention_mix
from shoal.surgery.fields import per_layer_fields, views
from shoal.surgery.refusals import why_not


@dataclass(frozen=True)
class BlockGroup:
    """Neighbouring blocks that are alike.

    Attributes:
        first: First block.
        last: Last block.
        kind: Class of the block.
        attention: Kind of attention that the config states.
        mlp: `dense` or `MoE`.
        parameters: Parameters of one of them.
    """

    first: int
    last: int
    kind: str
    attention: str
    mlp: str
    parameters: int

    @property
    def span(self) -> str:
        """The blocks as text."""
        return f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"


@dataclass(frozen=True)
class Description:
    """The block map of a model.

    Attributes:
        id: Its name.
        architecture: Its class.
        path: Where the blocks are.
        depth: Number of blocks.
        parameters: Parameters, shared ones once.
        outside: Parameters outside the blocks.
        dtype: Dtype of the checkpoint, or of the loaded weights.
        groups: The blocks.
        attention: Kind of attention -> number of blocks.
        per_layer: Config field that depends on the blocks -> what pruning does with it.
        forbidden: What cannot be removed, one sentence each.
        sites: What can be removed at each block, and how it will be written.
        runner: How masks will be run; None if the weights were not loaded.
        reason: Why.
    """

    id: str
    architecture: str
    path: str
    depth: int
    parameters: int
    outside: int
    dtype: str
    groups: tuple[BlockGroup, ...]
    attention: dict[str, int]
    per_layer: dict[str, str]
    forbidden: tuple[str, ...]
    sites: tuple[BlockSites, ...] = ()
    runner: str | None = None
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self)


def describe(model: Model, *, deep: bool = True) -> Description:
    """Describe a model.

    Args:
        model: A hub id, folder, GGUF file or embedded name; or a model object.
        deep: Load the weights and check how masks will be run.
    """
    found, config = locate(model)
    if isinstance(found, DenseModel | nn.Module) or deep:
        dense = load_dense(found, config=config)
        choice = choose_runner(dense, random_batch(dense, 2, _length(config)))
        extra = {"runner": choice.runner.name, "reason": choice.reason}
        name, module, dtype = dense.source.id, dense.module, dense.dtype_name
    else:
        with torch.device("meta"):
            module = auto_class(config).from_config(config)
        own = "chosen when it is dequantised" if found.gguf else getattr(config, "dtype", None)
        extra, name, dtype = {}, found.id, str(own or "not stated")
    blocks = find_blocks(module)
    branches, why = None, "the weights were not loaded"
    if extra:
        branches, why = _branches(dense)
    inside = sum(p.numel() for p in blocks.layers.parameters())
    total = sum(p.numel() for p in module.parameters())
    return Description(
        id=name,
        architecture=type(module).__name__,
        path=blocks.path,
        depth=blocks.depth,
        parameters=total,
        outside=total - inside,
        dtype=dtype.removeprefix("torch."),
        groups=_groups(blocks.layers, config),
        attention=attention_mix(config, Mask.dense(blocks.depth)),
        per_layer=per_layer_fields(config),
        forbidden=tuple(why_not(config)),
        sites=sites(config, blocks.depth, branches, why),
        **extra,
    )


def _branches(dense: DenseModel) -> tuple[tuple[BlockBranches, ...] | None, str]:
    """What the blocks are made of, or None and why that cannot be told."""
    try:
        return dense.branches, ""
    except UnsupportedModelError as error:
        return None, str(error)


def _groups(layers: nn.ModuleList, config: PreTrainedConfig) -> tuple[BlockGroup, ...]:
    kinds = views(config).get("layer_types") or ["full_attention"] * len(layers)
    groups: list[BlockGroup] = []
    for i, layer in enumerate(layers):
        parameters = sum(p.numel() for p in layer.parameters())
        what = (_kind(layer), str(kinds[i]), mlp_kind(layer), parameters)
        last = groups[-1] if groups else None
        if last and (last.kind, last.attention, last.mlp, last.parameters) == what:
            groups[-1] = BlockGroup(last.first, i, *what)
        else:
            groups.append(BlockGroup(i, i, *what))
    return tuple(groups)


def _kind(layer: nn.Module) -> str:
    """Class of a block and of the parts that differ between kinds of blocks."""
    parts = [type(m).__name__ for n, m in layer.named_children() if "norm" not in n.lower()]
    parts = [p for p in parts if "Dropout" not in p]
    return f"{type(layer).__name__} ({', '.join(parts)})" if parts else type(layer).__name__


def _length(config: PreTrainedConfig) -> int:
    """Longer than a small sliding window."""
    window = getattr(text_config(config), "sliding_window", None) or 16
    return min(max(24, window + 8), 96)
