"""Where a gate can act inside a block: on what its sub-layers add, or on the block as a whole."""

from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn

from shoal.models.batch import TokenBatch
from shoal.models.dense import DenseModel
from shoal.models.masked import hidden_of, input_of, with_hidden

Updates = tuple[nn.Module, ...]
"""The modules of one block whose outputs are added to the hidden state, in the order of calls."""

PROBE = 512
"""Positions of the check: whole rows, so as many as one row has at least."""


def find_updates(dense: DenseModel, batch: TokenBatch) -> tuple[Updates, ...] | None:
    """Find, for every block, the modules that feed its residual additions.

    With h the input of a block, out its output, and a and m the outputs of two of its children
    (attention and MLP; their post-norms where the architecture has those), h + a + m must be out
    to the last bit, in one of the orders of addition. The same must hold once a and m are halved,
    which shows that nothing else of the block reads them.

    Args:
        dense: The model.
        batch: A real batch, on the model's device.

    Returns:
        The modules per block, or None if they cannot be told for every block.
    """
    probe = batch.first(PROBE)
    found = _watch(dense, probe, [tuple(b.children()) for b in dense.blocks.layers], halve=False)
    modules = [m for updates in found for m in updates]
    if not all(found) or len(set(map(id, modules))) != len(modules):
        return None
    return tuple(found) if _watch(dense, probe, found, halve=True) == found else None


def _watch(
    dense: DenseModel, batch: TokenBatch, candidates: list[Updates], *, halve: bool
) -> list[Updates]:
    """Run the batch and, for each block, name the candidates that add up to its output."""
    found: list[Updates] = []
    handles = []
    for block, children in zip(dense.blocks.layers, candidates, strict=True):
        watch = _Watch(found, halve)
        handles.append(block.register_forward_pre_hook(watch.enter, with_kwargs=True))
        handles += [child.register_forward_hook(watch.child) for child in children]
        handles.append(block.register_forward_hook(watch.leave))
    try:
        with torch.inference_mode():
            dense.module.base_model(**batch.forward_arguments(dense.dtype))
    finally:
        for handle in handles:
            handle.remove()
    return found


class _Watch:
    """One block's input and its children's outputs while it runs."""

    def __init__(self, found: list[Updates], halve: bool) -> None:
        self.found, self.halve = found, halve
        self.seen: list[tuple[nn.Module, Tensor]] = []
        self.inside = False

    def enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        # Copies, because some blocks add in place.
        self.entry, self.inside = input_of(args, kwargs).clone(), True
        self.seen.clear()

    def child(self, module: nn.Module, args: Any, output: Any) -> Any:
        hidden = output[0] if isinstance(output, list | tuple) else output
        if not self.inside or not isinstance(hidden, Tensor):
            return None
        if hidden.numel() != self.entry.numel():
            return None
        if self.halve:
            hidden = hidden * 0.5
            output = with_hidden(output, hidden)
        self.seen.append((module, hidden.clone().reshape(self.entry.shape)))
        return output

    def leave(self, module: nn.Module, args: Any, output: Any) -> None:
        self.inside = False
        h, out = self.entry, hidden_of(output)
        for (first, a), (second, m) in combinations(self.seen, 2):
            orders = (lambda a=a, m=m: h + a + m, lambda a=a, m=m: h + (a + m))
            if first is not second and any(torch.equal(add(), out) for add in orders):
                self.found.append((first, second))
                return
        single = [(child,) for child, a in self.seen if torch.equal(h + a, out)]
        self.found.append(single[0] if single else ())
