"""Looking at hidden states while the model's own forward runs, also at those inside blocks.

What a block receives and returns is seen by hooks. The state between its attention and its MLP is
no value that a module would return in every architecture (updates may be scaled before they are
added, or added inside of a module), so the block runs once more without the other branch, which
costs what the wanted branch costs.
"""

from collections.abc import Callable, Iterator, Set
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from shoal.core.mask import Part
from shoal.models.dense import DenseModel
from shoal.models.hidden import hidden_of, input_of
from shoal.models.silent import Halves
from shoal.objectives.scores.moments import Moment, State

_ALONE = {Moment.ATTN: Part.ATTN, Moment.MLP: Part.MLP}

Show = Callable[[State, Tensor], None]
"""Takes a state [B, T, d]; it may be overwritten later."""


@contextmanager
def watched(dense: DenseModel, wanted: Set[State], show: Show) -> Iterator[None]:
    """Show the wanted states of every forward pass, in the order of the blocks and moments.

    Args:
        dense: The model.
        wanted: Which states.
        show: Is called with each.

    Raises:
        UnsupportedModelError: If states inside blocks are wanted and their branches cannot be told.
    """
    inside = any(moment in _ALONE for _, moment in wanted)
    halves = Halves(dense.blocks.layers, dense.branches) if inside else None

    def before(i: int) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            if (i, Moment.ENTRY) in wanted:
                show((i, Moment.ENTRY), input_of(args, kwargs))
            for moment, part in _ALONE.items():
                if halves is not None and (i, moment) in wanted:
                    with halves.only(i, part):
                        show((i, moment), _run(module, args, kwargs))

        return hook

    def after(i: int) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if (i, Moment.EXIT) in wanted:
                show((i, Moment.EXIT), hidden_of(output))

        return hook

    with ExitStack() as stack:
        for i, layer in enumerate(dense.blocks.layers):
            stack.callback(layer.register_forward_pre_hook(before(i), with_kwargs=True).remove)
            stack.callback(layer.register_forward_hook(after(i)).remove)
        yield


def _run(block: nn.Module, args: Any, kwargs: dict[str, Any]) -> Tensor:
    """What a block returns for its arguments, called around the hooks that watch it."""
    # A copy, because some blocks add in place.
    hidden = input_of(args, kwargs).clone()
    if args:
        return hidden_of(block.forward(hidden, *args[1:], **kwargs))
    return hidden_of(block.forward(**{**kwargs, "hidden_states": hidden}))
