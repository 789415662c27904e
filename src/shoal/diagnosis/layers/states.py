"""The states that enter and leave every site while the dense model reads a text."""

from collections.abc import Set

import torch
from torch import Tensor

from shoal.core.errors import UnsupportedModelError
from shoal.models.batch import TokenBatch
from shoal.models.dense import DenseModel
from shoal.objectives.scores.moments import Moment, State
from shoal.objectives.scores.watching import watched


def states_at_rows(dense: DenseModel, wanted: Set[State], batch: TokenBatch) -> dict[State, Tensor]:
    """States at the rows of a micro-batch [R, d], from the model's own forward.

    Args:
        dense: The model.
        wanted: Which states.
        batch: The micro-batch, on the model's device.

    Raises:
        UnsupportedModelError: If a block is run more than once, or not at all, so that no single
            state enters it; or if states are not laid out as the tokens are.
    """
    shape = batch.input_ids.shape
    if shape[0] == shape[1] > 1:
        # Here a state that has its positions first would look like any other.
        states_at_rows(dense, {(0, Moment.ENTRY)}, batch.first(1))
    found: dict[State, Tensor] = {}
    again: set[int] = set()

    def show(state: State, hidden: Tensor) -> None:
        if state in found:
            again.add(state[0])
        check_layout(dense, hidden, batch)
        rows = batch.rows.to(hidden.device)
        found[state] = hidden.reshape(-1, hidden.shape[-1])[rows].to(dense.device)

    with watched(dense, wanted, show), torch.inference_mode():
        # The body alone: logits are not wanted here.
        dense.module.base_model(**batch.forward_arguments(dense.dtype))
    odd = sorted(again | {state[0] for state in wanted if state not in found})
    if odd:
        raise UnsupportedModelError(
            f"block {odd[0]} of {type(dense.module).__name__} is not run exactly once per forward "
            "pass, so no single state enters it."
        )
    return found


def check_layout(dense: DenseModel, hidden: Tensor, batch: TokenBatch) -> None:
    """Make sure that a state has a vector per token, text by text.

    Raises:
        UnsupportedModelError: If it has not.
    """
    if hidden.shape[:-1] != batch.input_ids.shape:
        raise UnsupportedModelError(
            f"the states of {type(dense.module).__name__} have the shape {tuple(hidden.shape)} "
            f"for tokens of the shape {tuple(batch.input_ids.shape)}, so which belongs to which "
            "token is not known."
        )
