"""Scores of a block by its weights: `magnitude` and `taylor` of Shortened LLaMA.

    magnitude   sum_w |w|                          no pass over the data
    taylor      sum_w | w dL/dw |                  one pass with gradients

over all weights of the block (Kim et al. 2024, 2402.02834); embeddings, final norm and output
matrix belong to no block. L is the objective's mean loss. The products are added up with their
sign over all examples before the absolute value is taken, so the value does not depend on the
size of the micro-batches. The original's does, because it takes one product per micro-batch.
"""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from shoal.models.dense import DenseModel
from shoal.models.head import LogitScorer
from shoal.objectives.base import ExampleBatch, ScoringObjective
from shoal.objectives.scores.differentiable import with_gradients


def magnitude(dense: DenseModel) -> NDArray[np.float64]:
    """Sum of the absolute weights of each block, float64 [N]."""
    with torch.no_grad():
        sums = [
            sum(float(w.detach().abs().sum(dtype=torch.float64)) for w in block.parameters())
            for block in dense.blocks.layers
        ]
    return np.array(sums, dtype=np.float64)


def taylor(dense: DenseModel, objective: ScoringObjective) -> NDArray[np.float64]:
    """Sum over each block's weights of |w dL/dw|, float64 [N].

    Gradients are taken for the blocks' weights only and added up in float32 at least, so this holds
    the blocks twice over (three times in 16 bits). Flags and gradients of the model stay as
    they were.

    Args:
        dense: The model.
        objective: A differentiable objective (see `check_differentiable`).
    """
    weights = list(dict.fromkeys(p for b in dense.blocks.layers for p in b.parameters()))
    weights = [w for w in weights if w.is_floating_point()]
    total: dict[nn.Parameter, Tensor] = {}
    share = _shares(objective)
    with with_gradients(dense.module, weights):
        for batch in objective.batches:
            local = replace(batch, tokens=batch.tokens.to(dense.device))
            loss = _losses(dense, objective, local) @ share[list(batch.examples)].to(dense.device)
            found = torch.autograd.grad(loss, weights, allow_unused=True)
            for weight, gradient in zip(weights, found, strict=True):
                # An expert that no token was sent to has none.
                if gradient is not None:
                    wide = torch.promote_types(weight.dtype, torch.float32)
                    gradient = gradient.to(wide)
                    total[weight] = total[weight] + gradient if weight in total else gradient
    count = objective.num_examples
    values = {w: float((g * w.detach()).abs().sum(dtype=torch.float64)) for w, g in total.items()}
    return np.array(
        [
            sum(values.get(w, 0.0) for w in block.parameters()) / count
            for block in dense.blocks.layers
        ]
    )


def _losses(dense: DenseModel, objective: ScoringObjective, batch: ExampleBatch) -> Tensor:
    logits: Tensor = dense.module(**batch.tokens.forward_arguments(dense.dtype)).logits
    scorer = LogitScorer(logits.reshape(-1, logits.shape[-1])[batch.tokens.rows])
    return objective.losses(scorer, batch)


def _shares(objective: ScoringObjective) -> Tensor:
    """Weight of each example, 1 on average: small ones would underflow in float16."""
    if objective.weights is None:
        return torch.ones(objective.num_examples, dtype=torch.float64)
    weights = torch.tensor(objective.weights, dtype=torch.float64)
    return weights / weights.mean()
