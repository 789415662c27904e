"""All scores by name."""

from shoal.objectives.scores.angles import ANGULAR, BLOCK_INFLUENCE
from shoal.objectives.scores.base import StateScore
from shoal.objectives.scores.norms import NORM_RATIO, RELATIVE_MAGNITUDE

STATES: dict[str, StateScore] = {
    "block_influence": BLOCK_INFLUENCE,
    "angular": ANGULAR,
    "relative_magnitude": RELATIVE_MAGNITUDE,
    "norm_ratio": NORM_RATIO,
}
"""Scores of the states that enter and leave blocks: one forward pass gives them all."""

SCORES: dict[str, str] = {name: score.summary for name, score in STATES.items()} | {
    "taylor": "weights times gradients, absolute, summed over the block",
    "magnitude": "absolute weights, summed over the block",
}
"""Name -> summary of every score that ranks blocks without a masked model."""
