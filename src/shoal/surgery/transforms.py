"""Tensors that have to change because their block got another index, or because others went.

Most tensors of a pruned model are those of the dense model under another name. The rules here are
about the others: what a model computes from the index of a block is folded into its weights, and
tensors outside the blocks that hold a slice per block lose the slices of the blocks that go.

    GPT-2         scores / (i + 1)             queries scaled by (new + 1) / (old + 1)
    DiffLlama     lambda = l + init(i)         difference of init added to l by way of lambda_q1
                  (1 - init(i)) W_o            ratio of the factors folded into W_o
    Gemma 3n, 4   embeddings packed by block   slices of the kept blocks
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from shoal.core.errors import UnsupportedModelError
from shoal.core.layout import Layout
from shoal.models.discover import text_config
from shoal.surgery import rules
from shoal.surgery.fields import read


@dataclass(frozen=True)
class Change:
    """How a tensor of the pruned model is made of one of the dense model.

    Attributes:
        make: Gives the new tensor, in the dtype of the old one; also on the meta device.
        beside: Further tensors of the same block that `make` takes, by their names inside it.
    """

    make: Callable[..., Tensor]
    beside: tuple[str, ...] = ()


BlockRule = Callable[[str, int, int], Change | None]
"""Name inside a block, old index, new index -> what has to change."""


@dataclass(frozen=True)
class Transforms:
    """The changes that one layout asks for.

    Attributes:
        layout: What the blocks of the pruned model are made of.
        packed: Whether tensors outside the blocks hold a slice per block.
        in_block: The rule about tensors inside the blocks, if the model has one.
    """

    layout: Layout
    packed: bool = False
    in_block: BlockRule | None = None

    @classmethod
    def of(cls, config: PreTrainedConfig, layout: Layout) -> "Transforms":
        """The changes for a dense model's config and what is to become of its blocks."""
        text = text_config(config)
        rule = IN_BLOCK.get(text.model_type)
        if text.model_type == "gpt2" and not read(text, "scale_attn_by_inverse_layer_idx"):
            rule = None
        return cls(layout, bool(read(text, "hidden_size_per_layer_input")), rule)

    @property
    def any(self) -> bool:
        """Whether any tensor may have to change."""
        return self.packed or self.in_block is not None

    def outside(self, name: str) -> Change | None:
        """The change of a tensor outside the blocks."""
        for ending, axis in rules.PACKED.items() if self.packed else ():
            if name == ending or name.endswith("." + ending):
                return Change(partial(keep_slices, layout=self.layout, axis=axis))
        return None

    def inside(self, rest: str, old: int, new: int) -> Change | None:
        """The change of a tensor inside a block.

        Args:
            rest: Its name inside the block.
            old: Index of the dense block that it comes from.
            new: Index of its block in the pruned model.
        """
        return None if self.in_block is None or old == new else self.in_block(rest, old, new)


def keep_slices(tensor: Tensor, layout: Layout, axis: int) -> Tensor:
    """Of a tensor that is packed by block along an axis, the slices of the kept blocks."""
    depth = layout.mask.depth
    parts = tensor.unflatten(axis, (depth, -1))
    kept = torch.tensor(layout.mlp, device=tensor.device)
    return parts.index_select(axis, kept).flatten(axis, axis + 1)


def _inverse_index(rest: str, old: int, new: int) -> Change | None:
    if not rest.startswith("attn.c_attn."):
        return None
    return Change(partial(_scale_queries, factor=(new + 1) / (old + 1)))


def _scale_queries(tensor: Tensor, factor: float) -> Tensor:
    """Queries are the first of three equal parts of the last axis."""
    queries, rest = tensor.split((tensor.shape[-1] // 3, tensor.shape[-1] // 3 * 2), dim=-1)
    return torch.cat([(queries.float() * factor).to(tensor.dtype), rest], dim=-1)


def _lambda_init(index: int) -> float:
    return 0.8 - 0.6 * math.exp(-0.3 * index)


def _differential(rest: str, old: int, new: int) -> Change | None:
    before, after = _lambda_init(old), _lambda_init(new)
    if rest == "self_attn.lambda_q1":
        return Change(partial(_raise_lambda, by=before - after), ("self_attn.lambda_k1",))
    if rest == "self_attn.o_proj.weight":
        return Change(partial(_scaled, factor=(1 - before) / (1 - after)))
    return None


def _raise_lambda(queries: Tensor, keys: Tensor, by: float) -> Tensor:
    """The nearest vector with exp(q . k) raised by a number, which is never negative here."""
    q, k = queries.double(), keys.double()
    if not k.is_meta and not k.any():
        raise UnsupportedModelError(
            "a block of this diffllama model has lambda_k1 = 0, so what it computes from its index "
            "cannot be folded into lambda_q1. Remove blocks at the end only."
        )
    product = (q * k).sum()
    wanted = torch.log(torch.exp(product) + by)
    return (q + k * (wanted - product) / (k * k).sum()).to(queries.dtype)


def _scaled(tensor: Tensor, factor: float) -> Tensor:
    return (tensor.double() * factor).to(tensor.dtype)


IN_BLOCK: dict[str, BlockRule] = {"gpt2": _inverse_index, "diffllama": _differential}
"""Model types that compute with the index of a block, with what folds it into the weights."""
