"""Scores by the angle between the states at the two ends of a window.

    block_influence   1 - mean cos(x, y)          ShortGPT, Men et al. 2024, 2403.03853
    angular           mean arccos(cos(x, y)) / pi  Gromov et al. 2024, 2403.17887

for the state x that enters and the state y that leaves. Block influence averages over all
positions, the angular distance over the last positions (see `positions.last_positions`).
"""

import math

from torch import Tensor

from shoal.objectives.scores.base import Ends, StateScore


def _one_minus_cosine(ends: Ends) -> Tensor:
    return 1.0 - ends.cosine


def _angle(ends: Ends) -> Tensor:
    return ends.cosine.arccos() / math.pi


BLOCK_INFLUENCE = StateScore("1 - cosine of input and output, all tokens", _one_minus_cosine)
ANGULAR = StateScore("angle of input and output, last token, over pi", _angle, last=True)
