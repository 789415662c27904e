"""What derivatives need: an objective that has some, and weights that are left as they were."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from shoal.core.errors import UsageError
from shoal.objectives.base import Objective, ScoringObjective


def check_scores_text(objective: Objective) -> ScoringObjective:
    """The objective, if it scores given text.

    Raises:
        UsageError: If it scores what the model generates.
    """
    if not isinstance(objective, ScoringObjective):
        raise UsageError(
            f"{objective.expression} scores what the model generates, so there is no given text "
            "to take states or gradients on. Rank by loss, or use the objective nll or margin."
        )
    return objective


def check_differentiable(objective: Objective) -> ScoringObjective:
    """The objective, if its losses have derivatives that say something at the dense model.

    Raises:
        UsageError: If they do not.
    """
    name = objective.expression
    scoring = check_scores_text(objective)
    if not scoring.differentiable:
        raise UsageError(
            f"{name} counts, so its gradient is zero. Use the objective margin, likelihood or nll "
            "for gradients."
        )
    if scoring.needs_reference:
        raise UsageError(
            f"{name} is least at the dense model itself, so its gradient is zero there. Use the "
            "objective nll for gradients."
        )
    return scoring


@contextmanager
def with_gradients(module: nn.Module, wanted: Sequence[nn.Parameter] = ()) -> Iterator[None]:
    """Record gradients, of all the weights for some only; put the flags of all back after.

    Args:
        module: The model.
        wanted: Weights that gradients are wanted for.
    """
    flags = [(p, p.requires_grad) for p in module.parameters()]
    try:
        for parameter, _ in flags:
            parameter.requires_grad_(False)
        for parameter in wanted:
            parameter.requires_grad_(True)
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        for parameter, flag in flags:
            parameter.requires_grad_(flag)
