"""Scores by the norms of the states at the two ends of a window.

    relative_magnitude   mean ||y - x|| / ||y||    EvoPress, Sieberling et al. 2024, 2410.14649
    norm_ratio           mean ||y|| / ||x||        a baseline of CBO, 2602.00161

for the state x that enters and the state y that leaves, over all positions.
"""

import torch
from torch import Tensor

from shoal.objectives.scores.base import Ends, StateScore

_TINY = torch.finfo(torch.float64).tiny


def _relative_change(ends: Ends) -> Tensor:
    return ends.change / ends.leaving.clamp_min(_TINY)


def _growth(ends: Ends) -> Tensor:
    return ends.leaving / ends.entering.clamp_min(_TINY)


RELATIVE_MAGNITUDE = StateScore("size of the change over that of the output", _relative_change)
NORM_RATIO = StateScore("size of the output over that of the input", _growth)
