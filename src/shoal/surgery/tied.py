"""Tensors that several blocks share, which files hold once, under the name of one of them.

The block that goes may be the one whose name they are under. So every block is given its own first,
and of those that the pruned model still shares one is written.
"""

from collections.abc import Iterable
from typing import Any

from transformers import PreTrainedModel

from shoal.surgery.stored import Stored


def handed_out(
    stored: Iterable[Stored], module: PreTrainedModel, lists: Iterable[str]
) -> list[Stored]:
    """The tensors, with those that blocks share under the name of every block that shares them.

    Args:
        stored: What the files hold.
        module: The dense model.
        lists: The paths of its lists of blocks.
    """
    found = {tensor.name: tensor for tensor in stored}
    heads = tuple(path + "." for path in lists)
    for second, first in _ties(module).items():
        if second not in found and first in found and second.startswith(heads):
            found[second] = found[first].called(second)
    return list(found.values())


def gathered(
    tensors: Iterable[Stored], module: PreTrainedModel, lists: Iterable[str]
) -> list[Stored]:
    """The tensors without the second names of those that blocks of a model share.

    Args:
        tensors: What is to be written.
        module: The pruned model.
        lists: The paths of its lists of blocks.
    """
    found = {tensor.name: tensor for tensor in tensors}
    heads = tuple(path + "." for path in lists)
    for second, first in _ties(module).items():
        if first in found and second.startswith(heads):
            found.pop(second, None)
    return list(found.values())


def _ties(module: PreTrainedModel) -> dict[str, str]:
    """Second name -> first name of the tensors that a model ties."""
    owner: Any = module
    return dict(getattr(owner, "all_tied_weights_keys", None) or {})
