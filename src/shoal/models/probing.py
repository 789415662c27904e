"""Running single blocks on a short text, with some of their modules silenced or disturbed."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from shoal.models.hidden import hidden_of, with_hidden


@dataclass(frozen=True)
class Called:
    """A module that ran inside a block.

    Attributes:
        path: Its path inside the block.
        wide: Whether its output is as large as the hidden state, and it runs once only: a dropout
            that both branches go through belongs to neither.
        width: Size of the last dimension of its output.
        length: How many things it returns; None where it returns a plain tensor.
    """

    path: str
    wide: bool
    width: int
    length: int | None


class Probe:
    """Runs the blocks of a model one by one.

    Args:
        layers: The blocks.
        entry: Hidden state that enters block 0 [B, T, d].
        call: Runs block i on a hidden state, as the model does.
    """

    def __init__(
        self, layers: nn.ModuleList, entry: Tensor, call: Callable[[int, Tensor], Tensor]
    ) -> None:
        self._layers, self._call = layers, call
        self._entries = [entry]

    def entry(self, index: int) -> Tensor:
        """The hidden state that enters a block."""
        while len(self._entries) <= index:
            last = len(self._entries) - 1
            self._entries.append(self._call(last, self._entries[last].clone()))
        return self._entries[index]

    def called(self, index: int) -> list[Called]:
        """The modules that run inside a block and return a tensor, in the order they end."""
        size = self.entry(index).numel()
        seen: dict[str, Called] = {}

        def note(path: str) -> Callable[..., None]:
            def hook(module: nn.Module, args: Any, output: Any) -> None:
                several = isinstance(output, list | tuple)
                first = output[0] if several and output else output
                if isinstance(first, Tensor) and first.dim():
                    wide, width = first.numel() == size and path not in seen, first.shape[-1]
                    seen[path] = Called(path, wide, width, len(output) if several else None)

            return hook

        with ExitStack() as stack:
            for path, module in self._layers[index].named_modules():
                if path:
                    stack.callback(module.register_forward_hook(note(path)).remove)
            self.run(index)
        return list(seen.values())

    def run(
        self,
        index: int,
        *,
        silent: Sequence[str] = (),
        zeroed: Sequence[str] = (),
        disturbed: str | None = None,
        hidden: Tensor | None = None,
    ) -> Tensor:
        """Run a block.

        Args:
            index: Which.
            silent: Modules that give zeros.
            zeroed: Parameters that are zeros.
            disturbed: A module whose output is changed.
            hidden: What enters; by default what the model itself would give it.

        Returns:
            What leaves it [B, T, d].
        """
        block = self._layers[index]
        with ExitStack() as stack:
            for name in zeroed:
                path, _, own = name.rpartition(".")
                stack.enter_context(_parameter_zeroed(block.get_submodule(path), own))
            # The disturbance first, so that a silent module stays silent.
            if disturbed is not None:
                module = block.get_submodule(disturbed)
                stack.callback(module.register_forward_hook(_disturb).remove)
            for path in silent:
                module = block.get_submodule(path)
                stack.callback(module.register_forward_hook(silence).remove)
            # A copy, because some blocks add in place.
            entry = self.entry(index) if hidden is None else hidden
            return self._call(index, entry.clone())


@contextmanager
def _parameter_zeroed(owner: nn.Module, name: str) -> Iterator[None]:
    """Put zeros in the place of a parameter for a while; its own data are not touched."""
    parameter = owner.get_parameter(name)
    owner._parameters[name] = nn.Parameter(torch.zeros_like(parameter), requires_grad=False)
    try:
        yield
    finally:
        owner._parameters[name] = parameter


def silence(module: nn.Module, args: Any, output: Any) -> Any:
    """A forward hook that makes a module give zeros."""
    return with_hidden(output, torch.zeros_like(hidden_of(output)))


def _disturb(module: nn.Module, args: Any, output: Any) -> Any:
    several = isinstance(output, list | tuple) and bool(output)
    first = output[0] if several else output
    if not isinstance(first, Tensor) or not first.is_floating_point() or not first.dim():
        return output
    # A ramp, because a norm that follows would take a constant away again.
    ramp = torch.linspace(-1, 1, first.shape[-1], dtype=first.dtype, device=first.device)
    return with_hidden(output, first * 0.5 + ramp)
