"""A model as geometry sees it, and the hidden states at every depth while its own forward runs."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from shoal.core.errors import UnsupportedModelError, UsageError
from shoal.models.batch import TokenBatch
from shoal.models.branches import BlockBranches
from shoal.models.dense import DenseModel
from shoal.models.discover import Blocks
from shoal.models.hidden import hidden_of, input_of
from shoal.models.sublayers import random_batch


@dataclass(frozen=True, eq=False)
class Batch:
    """Some sequences that run together.

    Attributes:
        inputs: What the model's forward takes, as the `run` of its `Stack` wants it.
        positions: The states that count, bool [B, T]: no padding, at least one per sequence.
        last: The last counted position of each sequence, int64 [B].
    """

    inputs: Any
    positions: Tensor
    last: Tensor

    def __post_init__(self) -> None:
        if self.positions.dim() != 2 or self.positions.dtype != torch.bool:
            raise UsageError(
                f"positions are bool [B, T]; got {self.positions.dtype} "
                f"{list(self.positions.shape)}."
            )
        if not self.positions.any(1).all():
            raise UsageError("a sequence has no position that counts; leave it out.")
        if not torch.equal(self.last, _last(self.positions)):
            raise UsageError("`last` must be the last position of each sequence that counts.")

    @classmethod
    def of(cls, inputs: Any, positions: Tensor) -> Self:
        """A batch whose last positions follow from those that count."""
        return cls(inputs, positions, _last(positions))


def _last(positions: Tensor) -> Tensor:
    # argmax gives the first of equal values.
    return positions.shape[1] - 1 - positions.flip(1).int().argmax(1)


@dataclass(frozen=True)
class Texts:
    """Inputs of one distribution.

    Attributes:
        name: What they are.
        batches: The sequences.
    """

    name: str
    batches: Sequence[Batch]


@dataclass(frozen=True)
class Stack:
    """Blocks that hand a hidden state on, and the forward that runs them.

    Attributes:
        blocks: The blocks.
        run: The model's own forward on the inputs of one batch, without gradients or a cache.
        branches: What each block is made of; empty where it cannot be told.
    """

    blocks: Blocks
    run: Callable[[Any], Any]
    branches: Sequence[BlockBranches] = ()

    @property
    def depth(self) -> int:
        """Number of blocks, N."""
        return self.blocks.depth


def llm_stack(dense: DenseModel, *, branches: bool = True) -> Stack:
    """A causal LM. Its batches hold a `TokenBatch` each, and no logits are computed.

    Args:
        dense: The model.
        branches: Whether to find what its blocks are made of. That takes as long as some forward
            passes and is needed to remove parts of blocks, and to scale updates.

    Raises:
        UnsupportedModelError: If its hidden states are not one vector per token, text by text.
    """
    body = dense.module.base_model
    inside = {id(module) for module in body.modules()}
    blocks = [block for layers in dense.blocks.stacks.values() for block in layers]
    module = body if all(id(block) in inside for block in blocks) else dense.module

    def run(tokens: TokenBatch) -> Any:
        with torch.no_grad():
            return module(**tokens.to(dense.device).forward_arguments(dense.dtype))

    # Of as many sequences as positions, a state that has its positions first looks like any other.
    tokens = random_batch(dense, 2, 3)
    states(Stack(dense.blocks, run), Batch.of(tokens, torch.ones(2, 3, dtype=torch.bool)))
    return Stack(dense.blocks, run, _branches(dense) if branches else ())


def _branches(dense: DenseModel) -> Sequence[BlockBranches]:
    try:
        return dense.branches
    except UnsupportedModelError:
        return ()


class _Enough(Exception):
    """Ends a forward pass whose later states nobody wants."""


def states(stack: Stack, batch: Batch, until: int | None = None) -> list[Tensor]:
    """The hidden states of a batch, with whatever interventions are in place.

    Args:
        stack: The model.
        batch: The sequences.
        until: Deepest state wanted; nothing behind it is run. All by default.

    Returns:
        N + 1 tensors, float32 [B, T, d], all on one device: what enters block 0, then what leaves
        each block. The last has not passed the final norm. With `until`, the first until + 1.

    Raises:
        UnsupportedModelError: If blocks are not run once each, in order, or their states are not
            one vector per position.
    """
    last = stack.depth if until is None else until
    found: list[Tensor] = []
    order: list[int] = []

    def keep(depth: int, hidden: Tensor) -> None:
        if hidden.dim() != 3 or hidden.shape[:2] != batch.positions.shape:
            raise UnsupportedModelError(
                f"the hidden state at depth {depth} has the shape {list(hidden.shape)} for "
                f"{list(batch.positions.shape)} sequences and positions. Geometry needs one "
                "vector per position, [sequences, positions, width]."
            )
        where = found[0].device if found else hidden.device
        # A copy, because some blocks add in place.
        found.append(hidden.detach().to(where, torch.float32, copy=True))
        order.append(depth)
        if depth == last < stack.depth:
            raise _Enough

    def entry(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        keep(0, input_of(args, kwargs))

    def leaving(depth: int) -> Callable[..., None]:
        return lambda module, args, output: keep(depth, hidden_of(output))

    layers = stack.blocks.layers
    # Hooks run in the order of registration, so these see what interventions have made.
    with ExitStack() as hooks:
        hooks.callback(layers[0].register_forward_pre_hook(entry, with_kwargs=True).remove)
        for i, layer in enumerate(layers):
            hooks.callback(layer.register_forward_hook(leaving(i + 1)).remove)
        hooks.enter_context(suppress(_Enough))
        stack.run(batch.inputs)
    if order != list(range(last + 1)):
        raise UnsupportedModelError(
            f"the {stack.depth} blocks of {stack.blocks.path} are not run once each, in order, so "
            "there is no single state at each depth."
        )
    return found
