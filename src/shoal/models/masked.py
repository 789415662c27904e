"""Running the model's own forward with some blocks taken out, and putting them back after.

Two ways that give the same hidden states:

* `skipped`: removed blocks are swapped for a module that hands its input on. Nothing of them is
  computed. Right for a forward pass without a KV cache.
* `muted`: removed blocks still run, and a hook replaces their output by their input. Costs a dense
  pass, but everything around the blocks (KV cache, states passed between layers) stays as it was,
  so it is the reference for generation.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import nn

from shoal.core.errors import UnsupportedModelError
from shoal.core.mask import Mask
from shoal.models.discover import Blocks


def hidden_of(output: Any) -> torch.Tensor:
    """The hidden state in what a block returned: the tensor itself, or the first of a sequence."""
    hidden = output if isinstance(output, torch.Tensor) else output[0]
    if not isinstance(hidden, torch.Tensor):
        raise UnsupportedModelError(
            f"a block returned {type(output).__name__} whose first element is no tensor."
        )
    return hidden


def with_hidden(output: Any, hidden: torch.Tensor) -> Any:
    """What a block returned, with another hidden state in it."""
    if isinstance(output, torch.Tensor):
        return hidden
    if isinstance(output, list):
        return [hidden, *output[1:]]
    if isinstance(output, tuple):
        rest = output[1:]
        return type(output)(hidden, *rest) if hasattr(output, "_fields") else (hidden, *rest)
    raise UnsupportedModelError(f"a block returned {type(output).__name__}, not a tensor or tuple.")


def input_of(args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:
    """The hidden state that a block was called with."""
    hidden = args[0] if args else kwargs.get("hidden_states")
    if not isinstance(hidden, torch.Tensor):
        raise UnsupportedModelError("a block takes no hidden state as its first argument.")
    return hidden


def pose_as(stand_in: nn.Module, block: nn.Module) -> None:
    """Give a module the plain attributes of the block whose place it takes.

    The surrounding forward may read them (attention_type, layer_idx, ...). A `forward` set on the
    block itself, as device hooks do, stays with the block.
    """
    for name, value in vars(block).items():
        if not name.startswith("_") and name != "forward" and name not in vars(stand_in):
            object.__setattr__(stand_in, name, value)


class _HandOn(nn.Module):
    """Stands where a block was and returns the hidden state that it is given."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        pose_as(self, block)

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return input_of(args, kwargs)


def _mute(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
    return with_hidden(output, input_of(args, kwargs).clone())


Masking = Callable[[Blocks, Mask], AbstractContextManager[None]]
"""One of the two ways."""


@contextmanager
def skipped(blocks: Blocks, mask: Mask) -> Iterator[None]:
    """Swap the removed blocks out; only for blocks that return a plain tensor, without a cache."""
    originals = {i: blocks.layers[i] for i in mask.blocks}
    for i, block in originals.items():
        blocks.layers[i] = _HandOn(block)
    try:
        yield
    finally:
        for i, block in originals.items():
            blocks.layers[i] = block


@contextmanager
def muted(blocks: Blocks, mask: Mask) -> Iterator[None]:
    """Let the removed blocks run and discard what they did."""
    handles = [blocks.layers[i].register_forward_hook(_mute, with_kwargs=True) for i in mask.blocks]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
