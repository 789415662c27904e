"""Whether blocks depend on one another beside the hidden state, found by watching one forward.

Replay runs a block with what the dense model gave it. That is right only where what it is given
does not come from the blocks before it: no states handed on from block to block, no container that
one block fills and another reads, and no block that is run more than once.
"""

from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from shoal.models.batch import TokenBatch
from shoal.models.dense import DenseModel


def obstacle_to_replay(dense: DenseModel, batch: TokenBatch) -> str | None:
    """Why single blocks must not be run by themselves; None where they may.

    Args:
        dense: The model.
        batch: Any batch, on the model's device.
    """
    if len(dense.blocks.stacks) > 1:
        return "blocks have a part in each of several stacks"
    watch = _Watch({id(block): i for i, block in enumerate(dense.blocks.layers)})
    with ExitStack() as stack, torch.inference_mode():
        for block in dense.blocks.layers:
            before = block.register_forward_pre_hook(watch.enter, with_kwargs=True)
            after = block.register_forward_hook(watch.leave, with_kwargs=True)
            stack.callback(before.remove)
            stack.callback(after.remove)
        dense.module.base_model(**batch.forward_arguments(dense.dtype))
    if watch.order != list(range(dense.depth)):
        return "blocks are not run once each, in order"
    return watch.found


class _Watch:
    """Notes what blocks are called with and what they return."""

    def __init__(self, index: dict[int, int]) -> None:
        self._index = index
        self._handed: list[Tensor] = []
        self._filled: dict[int, list[int]] = {}
        self.order: list[int] = []
        self.found: str | None = None

    def enter(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        """Before a block runs."""
        self.order.append(self._index[id(module)])
        self._filled = {id(c): _contents(c) for c in _containers(args, kwargs)}
        given = {id(value) for value in _tensors((args[1:], kwargs))}
        if any(id(state) in given for state in self._handed):
            self.found = "blocks hand states to one another"

    def leave(self, module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        """After a block ran."""
        for container in _containers(args, kwargs):
            if self._filled.get(id(container)) != _contents(container):
                self.found = "blocks read what other blocks have kept, such as keys and values"
        if not isinstance(output, Tensor):
            # Kept alive, so that no other tensor can get the same id.
            self._handed += _tensors(tuple(output)[1:])


def _containers(args: Any, kwargs: dict[str, Any]) -> Iterator[Any]:
    values = (*args, *kwargs.values())
    return (value for value in values if isinstance(value, MutableMapping | list))


def _contents(container: Any) -> list[int]:
    values = container.values() if isinstance(container, MutableMapping) else container
    return [id(value) for value in values]


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part)
