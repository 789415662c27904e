"""The loss of a lab model as geometry asks for it."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from shoal.config.shifts import ShiftSettings
from shoal.geometry.stack import Stack
from shoal.lab.functions import Prompts


class SquaredErrors:
    """Squared error of each function under the model as it is when called.

    Args:
        stack: The model.
        batches: The functions.
        skip: First points of each prompt that do not count: too few came before them.
    """

    def __init__(
        self, stack: Stack, batches: Sequence[Prompts], skip: int = ShiftSettings().skip
    ) -> None:
        self.stack, self.batches = stack, batches
        self.skip = min(skip, batches[0].points - 1)
        self.metric = f"mean squared error over the points after the first {self.skip}"

    def __call__(self) -> NDArray[np.float64]:
        """The loss of each function [B], in their order."""
        found = []
        for prompts in self.batches:
            errors = (self.stack.run(prompts).cpu() - prompts.y) ** 2
            found.append(errors[:, self.skip :].double().mean(1))
        values: NDArray[np.float64] = torch.cat(found).numpy()
        return values
