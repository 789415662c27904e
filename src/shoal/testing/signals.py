"""Made-up signals: for forecasts, and for tests of searches without a model."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.testing.landscapes import Landscape


@dataclass
class LandscapeSignals:
    """Signals that follow from a landscape, as good as they can be.

    A unit's score is what its single removal costs, a window's what the removal of the window
    costs, and the gradients are those of the examples' losses along each single removal.

    Attributes:
        landscape: The losses.
        space: The units.
        asked: Names of the signals that were asked for.
    """

    landscape: Landscape
    space: SearchSpace
    asked: list[str] = field(default_factory=list)

    def units(self, name: str) -> Sequence[float]:
        """Cost of each single removal."""
        self.asked.append(name)
        return [self._cost(self.space.dense.without(u)) for u in self.space.units]

    def windows(self, name: str, length: int) -> Sequence[float]:
        """Cost of removing each window."""
        self.asked.append(name)
        depth = self.space.depth
        starts = range(depth - length + 1)
        return [self._cost(Mask.of(depth, range(s, s + length))) for s in starts]

    def gradients(self) -> NDArray[np.float64]:
        """Minus the cost of each single removal, per example [m, N]: a gate of 1 is dense."""
        self.asked.append("gradients")
        dense = np.asarray(self.landscape.losses(self.space.dense))
        singles = [self.landscape.losses(self.space.dense.without(u)) for u in self.space.units]
        return dense[:, None] - np.asarray(singles).T

    def _cost(self, mask: Mask) -> float:
        dense = np.mean(self.landscape.losses(self.space.dense))
        return float(np.mean(self.landscape.losses(mask)) - dense)
