"""A prior over units from their single removals: what is cheap alone is likely to be removed.

p_i is proportional to exp(-(s_i - min s) / tau), where s_i is the loss without unit i and tau the
standard deviation of these losses, which makes the prior the same for every scale of loss. Sets
are drawn from it without replacement, by Gumbel top-k (Kool et al. 2019, 1903.06059): the k
largest of log p_i + G_i for independent standard Gumbel G_i.

Rethinking Layer Redundancy (2604.24938) leads its genetic and its Bayesian search by a prior of
single removals and does not define it; this definition fills the gap.

Under a weight s_i is what unit i adds to the dense loss per price (`ranking.per_price`), where the
mean price is 1. Units are then drawn until the target is met, and those in vain put back, the last
drawn first.

Cost: N evaluations for N units, those of the single removals.
"""

from collections.abc import Sequence
from math import inf, isfinite

import numpy as np
from numpy.typing import NDArray

from shoal.core.budget import Budget, Wanted, budget_of
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.searches.ranking import filled, per_price

OUTCAST = 1e-9
"""Weight of a unit without a finite loss, relative to the least of the others."""

PATIENCE = 20
"""Draws that end with too few units before a set is drawn in another way."""


def unit_scores(
    space: SearchSpace, budget: Budget, singles: Sequence[Evaluation], dense: float
) -> list[float]:
    """What units compare by: the loss without each, or its increase per price under a weight."""
    losses = [e.rank_key for e in singles]
    if budget.uniform:
        return losses
    prices = np.array([budget.price(unit) for unit in space.units])
    relative = (prices / prices.mean()).tolist()
    return [
        per_price(loss - dense, price) if isfinite(loss) else inf
        for loss, price in zip(losses, relative, strict=True)
    ]


def prior_weights(singles: Sequence[Evaluation]) -> NDArray[np.float64]:
    """How much each unit asks to be removed, by the losses of the single removals.

    Args:
        singles: The evaluation of each single removal, in the order of the units.

    Returns:
        As `weights_of`.
    """
    return weights_of([e.rank_key for e in singles])


def weights_of(scores: Sequence[float]) -> NDArray[np.float64]:
    """How much each unit asks to be removed.

    A unit whose loss is not finite or not complete has a weight near zero, but not zero: it is
    drawn where the budget cannot be met without it. Where all scores are equal, or none is finite,
    the prior is uniform.

    Args:
        scores: What units compare by, in the order of the units; the lowest weighs most.

    Returns:
        One positive weight per unit; they add up to 1.
    """
    losses = np.array(scores, float)
    finite = np.isfinite(losses)
    if not finite.any():
        return np.full(len(losses), 1 / len(losses))
    weights = np.empty(len(losses))
    weights[finite] = _softmin(losses[finite])
    weights[~finite] = OUTCAST * weights[finite].min()
    return np.asarray(weights / weights.sum())


def _softmin(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    above = losses - losses.min()
    if not above.any():
        return np.ones(len(losses))
    # Relative to the largest, so that no loss is too large or too small for its square.
    above /= above.max()
    return np.asarray(np.exp(-above / above.std()))


def shuffled(rng: np.random.Generator, weights: NDArray[np.float64]) -> list[int]:
    """All units in a random order in which those of more weight tend to come first.

    Each next unit is drawn from those left, in proportion to their weights.

    Args:
        rng: Source of randomness.
        weights: One positive weight per unit.

    Returns:
        Indices of the units.
    """
    keys = np.log(weights) + rng.gumbel(size=len(weights))
    order: list[int] = np.argsort(-keys, kind="stable").tolist()
    return order


def drawn_set(
    space: SearchSpace, rng: np.random.Generator, weights: NDArray[np.float64], k: Wanted
) -> Mask:
    """Draw a valid mask of `k` units from the prior, without replacement.

    Units that may not go with those drawn before are passed over. Where that leads to fewer than
    `k` units again and again, as some constraints make it, the mask is drawn without the prior.

    Args:
        space: The units, and which of them may go together.
        rng: Source of randomness.
        weights: One positive weight per unit.
        k: How many units to remove, or another budget.

    Raises:
        UsageError: If no valid mask was found.
    """
    budget = budget_of(k)
    for _ in range(PATIENCE):
        if (mask := filled(space, space.dense, shuffled(rng, weights), budget)) is not None:
            return mask
    return budget.sample(space, rng)
