"""Running the model's own forward with some sites taken out, and putting them back after.

Two ways that give the same hidden states:

* `skipped`: what is removed is swapped for modules that hand the hidden state on, or add zeros to
  it. Nothing of it is computed. Right for a forward pass without a KV cache.
* `muted`: what is removed still runs, and hooks discard what it did. Costs a dense pass, but
  everything around the blocks (KV cache, states passed between layers) stays as it was, so it is
  the reference for generation.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from shoal.core.errors import UnsupportedModelError
from shoal.core.mask import Mask, Part, Site
from shoal.models.branches import BlockBranches, Branch
from shoal.models.discover import Blocks
from shoal.models.hidden import StandIn, handed_on, input_of
from shoal.models.probing import silence
from shoal.models.silent import swapped, swaps_without


class _HandOn(StandIn):
    """Stands where a block was and returns the hidden state that it is given."""

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return input_of(args, kwargs)


def _mute(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
    return handed_on(module, args, kwargs, output)


Masking = Callable[[Blocks, Mask, Sequence[BlockBranches]], AbstractContextManager[None]]
"""One of the two ways."""


@contextmanager
def skipped(blocks: Blocks, mask: Mask, branches: Sequence[BlockBranches] = ()) -> Iterator[None]:
    """Take out what is removed; only for blocks that return a plain tensor, without a cache.

    Args:
        blocks: The model's blocks.
        mask: What is removed.
        branches: What each block is made of; needed where parts of blocks are removed.

    Raises:
        UnsupportedModelError: If a removed part is no branch of its block.
    """
    originals = [(layers, i, layers[i]) for layers in blocks.stacks.values() for i in mask.blocks]
    swaps = [
        swap
        for site, branch in _removed_branches(mask, branches)
        for swap in swaps_without(blocks.layers[site.layer], branch)
    ]
    for layers, i, block in originals:
        layers[i] = _HandOn(block)
    try:
        with swapped(swaps):
            yield
    finally:
        for layers, i, block in originals:
            layers[i] = block


@contextmanager
def muted(blocks: Blocks, mask: Mask, branches: Sequence[BlockBranches] = ()) -> Iterator[None]:
    """Let what is removed run and discard what it did.

    Args:
        blocks: The model's blocks.
        mask: What is removed.
        branches: What each block is made of; needed where parts of blocks are removed.

    Raises:
        UnsupportedModelError: If a removed part is no branch of its block.
    """
    silenced = [
        blocks.layers[site.layer].get_submodule(called.path)
        for site, branch in _removed_branches(mask, branches)
        for called in branch.updates
    ]
    with ExitStack() as stack:
        for layers in blocks.stacks.values():
            for i in mask.blocks:
                hook = layers[i].register_forward_hook(_mute, with_kwargs=True)
                stack.callback(hook.remove)
        for module in silenced:
            stack.callback(module.register_forward_hook(silence).remove)
        yield


def _removed_branches(mask: Mask, branches: Sequence[BlockBranches]) -> list[tuple[Site, Branch]]:
    found = []
    for site in mask:
        if site.part is Part.BLOCK:
            continue
        branch = branches[site.layer].branch(site.part) if branches else None
        if branch is None or not branches[site.layer].paired:
            raise UnsupportedModelError(
                f"{site} is no branch of its block that could be removed by itself. Remove whole "
                "blocks."
            )
        found.append((site, branch))
    return found
