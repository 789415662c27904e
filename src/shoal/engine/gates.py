"""Derivatives of each example's loss by gates on blocks or sub-layers, at the dense model (CBO).

A gate alpha scales what is added to the hidden state; 1 is the dense model, 0 removes the block or
sub-layer (CBO, Jansen et al. 2026, 2602.00161):

    updates     h' = h + alpha Attn(h),    h'' = h' + alpha Mlp(h')     where branches can be told
    sublayers   h' = h + alpha_1 Attn(h),  h'' = h' + alpha_2 Mlp(h')   likewise
    block       h'' = h + alpha (F(h) - h)                              for every architecture

Where one gate moves several of these together, its derivative is the sum of theirs:

    d/da L(alpha_1 = a, ..., alpha_n = a) = sum_i dL/d alpha_i

One forward and one backward pass per micro-batch give the derivatives of all its examples: the gate
is a tensor over positions, and since no position sees another example, the derivatives at an
example's positions are those of its own loss and add up to its row. Logits and activations of a
micro-batch are held at once; smaller micro-batches need less memory.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shoal.core.errors import NotFiniteError
from shoal.engine.gate_forms import Form, gates_for
from shoal.engine.gate_hooks import Gates
from shoal.models.dense import DenseModel
from shoal.models.head import LogitScorer
from shoal.objectives.base import ExampleBatch, Objective, ScoringObjective
from shoal.objectives.scores.differentiable import check_differentiable, with_gradients
from shoal.objectives.scores.positions import owners


@dataclass(frozen=True)
class GateGradients:
    """Derivatives of losses by gates.

    Attributes:
        values: One row per example, one column per gate, float64 [m, N] or [m, 2N].
        form: What the gates scaled.
    """

    values: NDArray[np.float64]
    form: Form


def gate_gradients(
    dense: DenseModel, objective: Objective, *, form: Form | None = None
) -> GateGradients:
    """Differentiate the loss of each example by each gate, at alpha = 1.

    Args:
        dense: The model; its weights, gradients and requires_grad flags are left as they are.
        objective: The objective.
        form: What the gates scale; by default the updates where they can be told, else the block.

    Raises:
        UsageError: If the objective has no derivatives, or none but zero at the dense model, or
            the form `updates` is asked for and the updates cannot be told.
        UnsupportedModelError: If the form `sublayers` is.
        NotFiniteError: If a derivative is not finite.
    """
    scoring = check_differentiable(objective)
    form, found = gates_for(dense, form)
    gates = Gates(dense, found)
    values = np.zeros((scoring.num_examples, len(found)))
    with with_gradients(dense.module):
        for batch in scoring.batches:
            local = replace(batch, tokens=batch.tokens.to(dense.device))
            values[list(batch.examples)] += _rows(gates, scoring, local)
    if not np.isfinite(values).all():
        raise NotFiniteError(
            f"{int((~np.isfinite(values)).any(1).sum())} of {len(values)} examples have no finite "
            "derivative. Try --dtype float32."
        )
    return GateGradients(values, form)


def _rows(gates: Gates, objective: ScoringObjective, batch: ExampleBatch) -> NDArray[np.float64]:
    """Derivatives of the examples of one micro-batch [examples, gates]."""
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
