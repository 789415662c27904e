"""Scores of a block by its weights: `magnitude` and `taylor` of Shortened LLaMA.

    magnitude   sum_w |w|                          no pass over the data
    taylor      sum_w | w dL/dw |                  one pass with gradients

over all weights of the block (Kim et al. 2024, 2402.02834); embeddings, final norm and output
matrix belong to no block. L is the objective's mean loss. The products are added up with their
sign over all examples before the absolute value is taken, so the value does not depend on the
size of the micro-batches. The original's does, because it takes one product per micro-batch.

The same sums exist for a sub-layer, over the weights that serve it alone. Weights that attention
and MLP share, as the one norm of some parallel blocks, count to the block and to neither of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from shoal.core.mask import Part
from shoal.models.dense import DenseModel
from shoal.models.head import LogitScorer
from shoal.objectives.base import ExampleBatch, ScoringObjective
from shoal.objectives.scores.differentiable import with_gradients

Groups = Sequence[Sequence[nn.Parameter]]
"""Weights that are scored together."""


def block_groups(dense: DenseModel) -> Groups:
    """The weights of each block [N]."""
    return [list(block.parameters()) for block in dense.blocks.layers]


def sublayer_groups(dense: DenseModel) -> Groups:
    """The weights that serve attention 0 alone, MLP 0 alone, attention 1 alone, ... [2N].

    Raises:
        UnsupportedModelError: If the branches of the model's blocks cannot be told.
    """
    groups: list[list[nn.Parameter]] = []
    for block, branches in zip(dense.blocks.layers, dense.branches, strict=True):
        own: dict[Part | None, list[nn.Parameter]] = {Part.ATTN: [], Part.MLP: [], None: []}
        for name, weight in block.named_parameters():
            own[branches.part_of(name)].append(weight)
        groups += [own[Part.ATTN], own[Part.MLP]]
    return groups


def magnitude(dense: DenseModel, groups: Groups | None = None) -> NDArray[np.float64]:
    """Sum of the absolute weights of each group, by default each block, float64."""
    groups = block_groups(dense) if groups is None else groups
    with torch.no_grad():
        values = {w: float(w.detach().abs().sum(dtype=torch.float64)) for w in _distinct(groups)}
    return _sums(groups, values)


def taylor(
    dense: DenseModel, objective: ScoringObjective, groups: Groups | None = None
) -> NDArray[np.float64]:
    """Sum over the weights of each group, by default each block, of |w dL/dw|, float64.

    Gradients are taken for these weights only and added up in float32 at least, so this holds
    them twice over (three times in 16 bits). Flags and gradients of the model stay as they were.

    Args:
        dense: The model.
        objective: A differentiable objective (see `check_differentiable`).
        groups: The weights that are scored together.
    """
    groups = block_groups(dense) if groups is None else groups
    weights = [w for w in _distinct(groups) if w.is_floating_point()]
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
    values = {w: float((g * w.detach()).abs().sum(dtype=torch.float64)) for w, g in total.items()}
    return _sums(groups, values) / objective.num_examples


def _distinct(groups: Groups) -> list[nn.Parameter]:
    return list(dict.fromkeys(weight for group in groups for weight in group))


def _sums(groups: Groups, values: Mapping[nn.Parameter, float]) -> NDArray[np.float64]:
    """Sum of each group; a weight without a value counts nothing."""
    return np.array([sum(values.get(w, 0.0) for w in g) for g in groups], dtype=np.float64)


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
