"""Lab models made by hand, whose best mask is known.

The first hidden number is a prediction. It enters as least squares gives it, divided by what the
blocks multiply it with, and one block does something that its test is about.
"""

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from shoal.config.lab import TrainConfig
from shoal.lab.checkpoint import LabCheckpoint
from shoal.lab.functions import Prompts
from shoal.lab.model import LabModel
from shoal.lab.references import least_squares
from shoal.models.discover import Blocks

POINTS = 8
"""Points of the prompts of planted models."""

Function = Callable[[Tensor], Tensor]
"""What a block does to the hidden state [B, T, 1]."""


class _Block(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, hidden: Tensor) -> Tensor:
        return self.function(hidden)


class Planted(nn.Module):
    """A lab model made by hand, with the fast path of `shoal.lab.model.LabModel`.

    Args:
        functions: What each block does.
        scale: What the least squares prediction is multiplied with before block 0.
    """

    def __init__(self, functions: Sequence[Function], scale: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(map(_Block, functions))
        self.scale = nn.Parameter(torch.tensor(scale), requires_grad=False)

    @property
    def blocks(self) -> Blocks:
        """Its blocks."""
        return Blocks("layers", self.layers)

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return len(self.layers)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Predict each y from the points before it [B, n]."""
        hidden = self.entry(x, y)
        for layer in range(self.depth):
            hidden = self.run_block(layer, hidden)
        return self.read(hidden)

    def entry(self, x: Tensor, y: Tensor) -> Tensor:
        """What least squares predicts, times the scale [B, 2 n - 1, 1]."""
        fitted = torch.from_numpy(least_squares(Prompts(x, y, x), 1)).float()
        return fitted.repeat_interleave(2, 1)[:, :-1, None] * self.scale

    def run_block(self, layer: int, hidden: Tensor) -> Tensor:
        """Apply one block to hidden states [B, T, 1]."""
        out: Tensor = self.layers[layer](hidden)
        return out

    def read(self, hidden: Tensor) -> Tensor:
        """The hidden states at the x are the predictions."""
        return hidden[:, ::2, 0]


def planted(*functions: Function, scale: float = 1.0, seed: int = 0) -> LabCheckpoint:
    """A checkpoint of a planted model that counts as trained on U(-1,1), degree 1.

    Args:
        functions: What each block does.
        scale: What the least squares prediction is multiplied with before block 0.
        seed: What counts as the seed of its training.
    """
    config = TrainConfig(layers=len(functions), points=POINTS, seed=seed)
    model = cast(LabModel, Planted(functions, scale))
    return LabCheckpoint("planted", config, model, "0" * 64)


def times(factor: float) -> Function:
    """Multiplies."""
    return lambda hidden: factor * hidden


def plus(offset: float) -> Function:
    """Adds."""
    return lambda hidden: hidden + offset


def amplified(hidden: Tensor) -> Tensor:
    """Leaves alone what could occur in training, |f| <= 2, and triples the rest."""
    return torch.where(hidden.abs() > 2, 3 * hidden, hidden)


def clipped(hidden: Tensor) -> Tensor:
    """Cuts off what could not occur in training."""
    return hidden.clamp(-2, 2)
