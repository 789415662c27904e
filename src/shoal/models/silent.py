"""Taking one branch of a block out of its forward, so that it costs nothing.

The module whose output would be added is replaced by one that gives zeros, and what only works for
it by one that hands its input on. Adding zeros changes no bit, so a block without its attention,
run after the block without its MLP, is the block.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from shoal.core.mask import Part
from shoal.models.branches import BlockBranches, Branch
from shoal.models.hidden import StandIn, input_of
from shoal.models.probing import Called

Swap = tuple[nn.Module, str, nn.Module, nn.Module]
"""Parent, name of the child, the child, and what takes its place."""


class _Silent(StandIn):
    """Returns a hidden state in the form that the module it replaces returns."""

    def __init__(self, module: nn.Module, called: Called) -> None:
        super().__init__(module)
        self._width, self._length = called.width, called.length

    def _shaped(self, hidden: Tensor) -> Any:
        if self._length is None:
            return hidden
        return (hidden, *(None,) * (self._length - 1))


class Zeros(_Silent):
    """Gives zeros."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Zeros like the input, as wide as the output of the module was."""
        given = input_of(args, kwargs)
        return self._shaped(given.new_zeros(*given.shape[:-1], self._width))


class PassOn(_Silent):
    """Hands its input on."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The input."""
        return self._shaped(input_of(args, kwargs))


def swaps_without(block: nn.Module, branch: Branch) -> list[Swap]:
    """What must be swapped so that a block runs without one of its branches."""
    swaps = [_swap(block, called, Zeros) for called in branch.updates]
    return swaps + [_swap(block, called, PassOn) for called in branch.heavy]


def _swap(block: nn.Module, called: Called, kind: type[_Silent]) -> Swap:
    parent, _, name = called.path.rpartition(".")
    owner = block.get_submodule(parent)
    child = block.get_submodule(called.path)
    return owner, name, child, kind(child, called)


@contextmanager
def swapped(swaps: Sequence[Swap]) -> Iterator[None]:
    """Put the stand-ins in place for a while."""
    for owner, name, _, stand_in in swaps:
        owner._modules[name] = stand_in
    try:
        yield
    finally:
        for owner, name, child, _ in swaps:
            owner._modules[name] = child


class Halves:
    """Runs single branches of the blocks of a model.

    Args:
        layers: The blocks.
        branches: What each is made of.
    """

    def __init__(self, layers: nn.ModuleList, branches: Sequence[BlockBranches]) -> None:
        self._layers, self._branches = layers, branches
        self._known: dict[tuple[int, Part], list[Swap]] = {}

    def without(self, layer: int, part: Part) -> list[Swap]:
        """The swaps that take a branch out of a block; none where the block has no such branch."""
        key = (layer, part)
        if key not in self._known:
            branch = self._branches[layer].branch(part)
            self._known[key] = [] if branch is None else swaps_without(self._layers[layer], branch)
        return self._known[key]

    @contextmanager
    def only(self, layer: int, part: Part) -> Iterator[None]:
        """Let a block run one of its branches alone; the whole block for `Part.BLOCK`."""
        if part is Part.BLOCK:
            yield
            return
        with swapped(self.without(layer, Part.MLP if part is Part.ATTN else Part.ATTN)):
            yield
