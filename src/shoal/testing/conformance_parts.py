"""An attention or an MLP taken out of a block by the names of its weights, for the oracle.

shoal finds the branches of a block by what its modules do. Here the last projection of a branch is
told by its name and filled with zeros, which is another way to the same thing; where zeroing both
branches is not the same as leaving the block out, there is nothing to compare with.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

_ATTENTION = re.compile(
    r"att|lstm|mamba|mixer|conv|ssm|recurrent|temporal|delta|retention|time", re.IGNORECASE
)
_MLP = re.compile(r"mlp|ffn?|feed|moe|expert|fc|dense_4h|intermediate|output", re.IGNORECASE)

_LAST = re.compile(
    r"^(2|value|Wo|attention_out|o_proj|out_proj|c_proj|dense|wo|w_o|o|output|fc_out|out|out_lin|linear_out|"
    r"down_proj|fc2|dense_4h_to_h|w2|output_linear|lin2|proj_down|w_out)(_bias)?$"
)


def projections(block: nn.Module, part: str) -> list[nn.Parameter]:
    """The last projection of a branch, with its bias.

    Args:
        block: The block.
        part: `attn` or `mlp`.
    """
    found = []
    names = {name for name, _ in block.named_parameters()}
    for name, parameter in block.named_parameters():
        parts = name.split(".")
        owner = ".".join(parts[:-1])
        attends = _ATTENTION.search(owner) is not None and not re.search(
            r"mlp|moe|feed_forward|ffn", owner
        )
        mine = attends if part == "attn" else not attends and _MLP.search(name) is not None
        if "norm" in owner:
            continue
        # Experts may keep the bias of their last projection beside it.
        beside = parts[-1] == "bias" and f"{owner}.output_linear.weight" in names
        if mine and (beside or any(map(_LAST.match, parts[-3:]))):
            found.append(parameter)
    return found


@contextmanager
def zeroed(block: nn.Module, part: str) -> Iterator[None]:
    """Fill the last projection of a branch with zeros for a while."""
    parameters = projections(block, part)
    saved = [parameter.detach().clone() for parameter in parameters]
    with torch.no_grad():
        for parameter in parameters:
            parameter.zero_()
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, value in zip(parameters, saved, strict=True):
                parameter.copy_(value)
