"""The lab model and its prompts as geometry sees them."""

from collections.abc import Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from shoal.core.errors import UsageError
from shoal.core.mask import Part
from shoal.geometry.stack import Batch, Stack, Texts
from shoal.lab.functions import Prompts
from shoal.lab.model import LabModel
from shoal.models.branches import BlockBranches, Branch
from shoal.models.probing import Called

CLASSES: Mapping[str, slice] = MappingProxyType({"x": slice(0, None, 2), "y": slice(1, None, 2)})
"""Positions of the x tokens and of the y tokens."""


def lab_stack(model: LabModel) -> Stack:
    """A lab model. Its batches hold `Prompts`, and it runs to its predictions.

    Args:
        model: The model.
    """
    width = model.config.width
    # GPT-2's attention returns its weights, or None, beside its output.
    attention = Called("attn", wide=True, width=width, length=2)
    mlp = Called("mlp", wide=True, width=width, length=None)
    branches = BlockBranches(
        attn=_branch(Part.ATTN, attention, "ln_1"),
        mlp=_branch(Part.MLP, mlp, "ln_2"),
        sequential=True,
        shared=(),
    )

    def run(prompts: Prompts) -> Tensor:
        where = model.read_in.weight.device
        with torch.no_grad():
            predictions: Tensor = model(prompts.x.to(where), prompts.y.to(where))
        return predictions

    return Stack(model.blocks, run, (branches,) * model.depth)


def _branch(part: Part, update: Called, norm: str) -> Branch:
    outputs = tuple(f"{update.path}.c_proj.{name}" for name in ("weight", "bias"))
    return Branch(part, (update,), (norm, update.path), outputs=outputs)


def lab_texts(prompts: Prompts, name: str, batch: int = 256) -> Texts:
    """Prompts as texts: every token counts, and the last one is the last x.

    Args:
        prompts: Points of functions, n of each.
        name: What they are.
        batch: Prompts that run together, at most.

    Returns:
        Sequences of 2 n - 1 tokens: x_1, y_1, x_2, ..., x_n.

    Raises:
        UsageError: If no prompts may run together.
    """
    if batch < 1:
        raise UsageError(f"at least 1 prompt runs at a time, got a batch of {batch}.")
    tokens = 2 * prompts.points - 1
    parts = (prompts.rows(i, i + batch) for i in range(0, len(prompts), batch))
    return Texts(
        name,
        tuple(Batch.of(part, torch.ones(len(part), tokens, dtype=torch.bool)) for part in parts),
    )
