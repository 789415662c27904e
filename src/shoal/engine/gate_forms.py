"""What gates can act on: what sub-layers add to the hidden state, or what a block changes."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from shoal.core.errors import UnsupportedModelError, UsageError
from shoal.models.branches import Branch
from shoal.models.dense import DenseModel

Form = Literal["updates", "block", "sublayers"]

Modules = tuple[nn.Module, ...]
"""Modules whose outputs are added to the hidden state."""


@dataclass(frozen=True)
class Gate:
    """One gate.

    Attributes:
        block: The block in which it acts.
        updates: The modules whose outputs it scales; None where it scales the block's change.
    """

    block: nn.Module
    updates: Modules | None = None


def gates_for(dense: DenseModel, form: Form | None = None) -> tuple[Form, list[Gate]]:
    """The gates of a form: one per block, or for `sublayers` attention 0, MLP 0, attention 1, ...

    Args:
        dense: The model.
        form: What the gates scale; by default the updates where they can be told, else the block.

    Returns:
        The form, and its gates.

    Raises:
        UsageError: If the form `updates` is asked for and the updates cannot be told.
        UnsupportedModelError: If the form `sublayers` is, with the reason.
    """
    layers = dense.blocks.layers
    if form == "block":
        return form, [Gate(block) for block in layers]
    try:
        pairs = _updates(dense)
    except UnsupportedModelError as error:
        if form is None:
            return gates_for(dense, "block")
        if form == "sublayers":
            raise
        raise UsageError(
            f"the updates of {type(dense.module).__name__}'s blocks cannot be told apart: {error}. "
            "Use the form block."
        ) from error
    found = list(zip(layers, pairs, strict=True))
    if form == "sublayers":
        return form, [Gate(block, updates) for block, pair in found for updates in pair]
    return "updates", [Gate(block, (*attn, *mlp)) for block, (attn, mlp) in found]


def _updates(dense: DenseModel) -> list[tuple[Modules, Modules]]:
    """The modules whose outputs attention and MLP add, per block."""
    found = [
        (_modules(block, branches.attn), _modules(block, branches.mlp))
        for block, branches in zip(dense.blocks.layers, dense.branches, strict=True)
    ]
    every = [id(module) for pair in found for modules in pair for module in modules]
    if len(set(every)) != len(every):
        # It would run through the gates of all of them each time.
        raise UnsupportedModelError(
            f"blocks of {type(dense.module).__name__} share a module whose output they add"
        )
    return found


def _modules(block: nn.Module, branch: Branch | None) -> Modules:
    return tuple(block.get_submodule(c.path) for c in branch.updates) if branch else ()
