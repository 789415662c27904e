"""The hidden state among what blocks and their parts are called with and return."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from shoal.core.errors import UnsupportedModelError


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


def handed_on(module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
    """What a block would have returned had it done nothing.

    States that are handed from block to block beside the hidden state (`prev_...`, the second
    stream of XLNet) come out as they went in; whatever else was returned stays.
    """
    if isinstance(output, torch.Tensor):
        return input_of(args, kwargs).clone()
    given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    if hasattr(output, "_replace"):
        came_in = {name: given.get(name, given.get(f"prev_{name}")) for name in output._fields}
        streams = {n: v.clone() for n, v in came_in.items() if isinstance(v, torch.Tensor)}
        return output._replace(**streams)
    states = [v for name, v in given.items() if name.startswith("prev_") or name == "output_g"]
    return type(output)([input_of(args, kwargs).clone(), *states, *output[1 + len(states) :]])


def input_of(args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:
    """The hidden state that a block was called with."""
    hidden = args[0] if args else kwargs.get("hidden_states")
    if not isinstance(hidden, torch.Tensor):
        raise UnsupportedModelError("a block takes no hidden state as its first argument.")
    return hidden


class StandIn(nn.Module):
    """Stands in a module's place, and has whatever the code around it reads from that module.

    A `forward` set on the module itself, as device hooks do, stays with the module.

    Args:
        module: The module.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        # In a list, so that the module is not registered as a child.
        self._held = [module]

    def __getattr__(self, name: str) -> Any:
        """An attribute, parameter or child of the module."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["_held"][0], name)
