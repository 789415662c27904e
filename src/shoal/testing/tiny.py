"""Tiny random causal LMs of every family, built without any file or network."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from shoal.core.errors import unknown_name
from shoal.testing.families import FAMILIES
from shoal.testing.tokenizer import tiny_tokenizer
from shoal.testing.zoo import ZOO

__all__ = ["TINY_FAMILIES", "ZOO", "save_tiny", "tiny_config", "tiny_model", "tiny_tokenizer"]

TINY_FAMILIES: tuple[str, ...] = FAMILIES
"""The families that most tests run over."""

NOISE = 0.15
"""Standard deviation of what is added to every weight, so that every block matters."""

_TABLES = ("slope_rate", "query_decay", "key_decay", "diagonal_decay")
"""Buffers of MiniMax that follow from one another, so that noise would make them disagree."""


def tiny_config(family: str, *, depth: int = 6) -> PreTrainedConfig:
    """The config of a tiny model.

    Args:
        family: A name in `ZOO`.
        depth: Number of blocks.

    Raises:
        UsageError: If there is no such family.
    """
    if family not in ZOO:
        raise unknown_name("family", family, ZOO)
    return ZOO[family].config(depth)


def tiny_model(family: str, *, depth: int = 6, seed: int = 0) -> PreTrainedModel:
    """Build a tiny model: hidden size 32, vocabulary 128, 4 heads, float32, eval mode.

    The same arguments give the same weights. Skipping any of its blocks changes the logits.

    Args:
        family: A name in `ZOO`.
        depth: Number of blocks.
        seed: Seed of the weights.

    Raises:
        UsageError: If there is no such family.
    """
    config = tiny_config(family, depth=depth)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        auto: Any = AutoModelForCausalLM
        model: PreTrainedModel = auto.from_config(config, dtype=torch.float32)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(NOISE * torch.randn_like(parameter))
            for _, buffer in _stored_buffers(model):
                buffer.add_(NOISE * torch.randn_like(buffer))
    model.train(False)
    return model


def _stored_buffers(model: PreTrainedModel) -> list[tuple[str, torch.Tensor]]:
    stored = {n for n in model.state_dict() if not n.endswith(_TABLES)}
    return [(n, b) for n, b in model.named_buffers() if n in stored and b.is_floating_point()]


def save_tiny(
    family: str,
    folder: Path,
    *,
    depth: int = 6,
    tokenizer: bool = True,
    max_shard_size: int | str | None = None,
) -> Path:
    """Write a tiny model as an ordinary checkpoint folder.

    Args:
        family: A name in `ZOO`.
        folder: Where to write; made if it is not there.
        depth: Number of blocks.
        tokenizer: Whether to write the tokenizer as well.
        max_shard_size: Largest weight file, in bytes or as text such as `20KB`; None for one file.

    Returns:
        The folder.
    """
    model = tiny_model(family, depth=depth)
    sizes: dict[str, Any] = {} if max_shard_size is None else {"max_shard_size": max_shard_size}
    model.save_pretrained(folder, **sizes)
    if tokenizer:
        tiny_tokenizer().save_pretrained(folder)
    return folder
