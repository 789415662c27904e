"""Derivatives of each example's loss by a gate on each block, at the dense model (CBO).

A gate alpha scales what a block adds to the hidden state; 1 is the dense model, 0 removes the
block (CBO, Jansen et al. 2026, 2602.00161):

    updates   h' = h + alpha Attn(h),  h'' = h' + alpha Mlp(h')     where a check proves the form
    block     h'' = h + alpha (F(h) - h)                            for every architecture

One forward and one backward pass per micro-batch give the derivatives of all its examples: the gate
is a tensor over positions, and since no position sees another example, the derivatives at an
example's positions are those of its own loss and add up to its row. Logits and activations of a
micro-batch are held at once; smaller micro-batches need less memory.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shoal.core.errors import NotFiniteError, UsageError
from shoal.engine.gate_forms import find_updates
from shoal.engine.gate_hooks import Gates
from shoal.models.dense import DenseModel
from shoal.models.head import LogitScorer
from shoal.objectives.base import ExampleBatch, Objective, ScoringObjective
from shoal.objectives.scores.differentiable import check_differentiable, with_gradients
from shoal.objectives.scores.positions import owners

Form = Literal["updates", "block"]


@dataclass(frozen=True)
class GateGradients:
    """Derivatives of losses by gates.

    Attributes:
        values: One row per example, one column per block, float64 [m, N].
        form: What the gates scaled.
    """

    values: NDArray[np.float64]
    form: Form


def gate_gradients(
    dense: DenseModel, objective: Objective, *, form: Form | None = None
) -> GateGradients:
    """Differentiate the loss of each example by the gate of each block, at alpha = 1.

    Args:
        dense: The model; its weights, gradients and requires_grad flags are left as they are.
        objective: The objective.
        form: What the gates scale; by default the updates where they can be told, else the block.

    Raises:
        UsageError: If the objective has no derivatives, or none but zero at the dense model, or
            the form `updates` is asked for and cannot be proved.
        NotFiniteError: If a derivative is not finite.
    """
    scoring = check_differentiable(objective)
    first = scoring.batches[0].tokens.to(dense.device)
    updates = None if form == "block" else find_updates(dense, first)
    if form == "updates" and updates is None:
        raise UsageError(
            f"the updates of {type(dense.module).__name__}'s blocks cannot be told apart; use the "
            "form block."
        )
    gates = Gates(dense, updates)
    values = np.zeros((scoring.num_examples, dense.depth))
    with with_gradients(dense.module):
        for batch in scoring.batches:
            local = replace(batch, tokens=batch.tokens.to(dense.device))
            values[list(batch.examples)] += _rows(gates, scoring, local)
    if not np.isfinite(values).all():
        raise NotFiniteError(
            f"{int((~np.isfinite(values)).any(1).sum())} of {len(values)} examples have no finite "
            "derivative. Try --dtype float32."
        )
    return GateGradients(values, "block" if updates is None else "updates")


def _rows(gates: Gates, objective: ScoringObjective, batch: ExampleBatch) -> NDArray[np.float64]:
    """Derivatives of the examples of one micro-batch [examples, N]."""
    tokens = batch.tokens
    with gates.placed(tokens.input_ids.shape) as alphas:
        logits: Tensor = gates.dense.module(**tokens.forward_arguments(gates.dense.dtype)).logits
    scorer = LogitScorer(logits.reshape(-1, logits.shape[-1])[tokens.rows])
    total = objective.losses(scorer, batch).sum()
    by_position = torch.autograd.grad(total, alphas, materialize_grads=True)
    owner = owners(batch).reshape(-1).cpu()
    real = owner >= 0
    rows = torch.zeros(len(batch.examples), len(alphas), dtype=torch.float64)
    columns = torch.stack([g.reshape(-1).double().cpu() for g in by_position], dim=1)
    return rows.index_add_(0, owner[real], columns[real]).numpy()
