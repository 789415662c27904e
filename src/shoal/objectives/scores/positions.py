"""Which positions of a micro-batch a state score looks at."""

import torch
from torch import Tensor

from shoal.core.errors import UsageError
from shoal.objectives.base import ExampleBatch


def owners(batch: ExampleBatch) -> Tensor:
    """The example that each position belongs to [B, T], -1 for padding.

    Raises:
        UsageError: If the micro-batch does not say.
    """
    if batch.tokens.owner is None:
        raise UsageError(
            "this objective does not say which positions belong to which example, so states and "
            "gradients cannot be assigned. Rank by loss, or use the objective nll or margin."
        )
    return batch.tokens.owner


def real_positions(batch: ExampleBatch) -> Tensor:
    """Flat positions of all tokens, without padding [P]."""
    return (owners(batch) >= 0).reshape(-1).nonzero()[:, 0]


def last_positions(batch: ExampleBatch) -> Tensor:
    """Flat positions at which a text ends [P].

    Where a sequence is one example, that is its last token. Where it holds several examples or
    choices there is no single last token: the positions that predict a scored token stand for it,
    which for answers of one token is the end of the prompt.
    """
    tokens = batch.tokens
    owner = owners(batch)
    if not len(batch.examples) == tokens.num_segments == len(owner):
        return tokens.rows
    width = owner.shape[1]
    # The last column that is no padding.
    last = width - 1 - (owner >= 0).flip(1).int().argmax(1)
    return torch.arange(len(owner), device=owner.device) * width + last
