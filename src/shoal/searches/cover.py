"""Sets of units that meet a budget, many at once: filled up and trimmed as rows of a matrix.

For units of different prices and for units that overlap. Constraints of the architecture are not
known here; what comes out must still be asked for.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from shoal.core.budget import ROUNDING, Budget
from shoal.core.space import SearchSpace
from shoal.searches.unit_sets import UnitSet, sets_of

Rows = NDArray[np.bool_]
"""Sets of units, a row each [m, N]."""

FIRST = 1e300
"""The key of a unit that must be taken, and the last to be put back."""


@dataclass(frozen=True)
class Cover:
    """What a budget asks of a set of units, in numbers.

    Attributes:
        prices: One per unit; their mean is 1 [N].
        target: How much a set must weigh.
        apart: Which pairs overlap, each unit with itself among them [N, N].
    """

    prices: NDArray[np.float64]
    target: float
    apart: NDArray[np.bool_]

    @classmethod
    def of(cls, space: SearchSpace, budget: Budget) -> Self:
        """The numbers of a budget."""
        prices = np.array([budget.price(unit) for unit in space.units])
        start, stop = np.array(space.spans, np.intp).reshape(-1, 2).T
        apart = (start[:, None] < stop) & (start < stop[:, None])
        target = budget.missing(space, space.dense) * (1 - ROUNDING)
        scale = prices.mean()
        return cls(prices / scale, target / scale, apart)

    def completed(self, rows: Rows, keys: NDArray[np.float64]) -> tuple[Rows, NDArray[np.bool_]]:
        """Sets that meet the target and have no unit in vain.

        Units that overlap with none of the set are added by descending key; of those in vain the
        one with the lowest key is put back, until none is.

        Args:
            rows: Sets to begin with, of units apart from each other.
            keys: A number per unit, or per set and unit; -inf for one that must not be added.

        Returns:
            The sets, without those that cannot be filled up; and which rows could.
        """
        inside, keys = rows.copy(), np.broadcast_to(keys, rows.shape)
        weight, blocked = inside @ self.prices, inside @ self.apart
        while True:
            closed = blocked | (weight >= self.target)[:, None]
            left = np.where(closed, -np.inf, keys)
            into = left.argmax(1)
            growing = np.flatnonzero(left[np.arange(len(into)), into] > -np.inf)
            if not len(growing):
                break
            chosen = into[growing]
            inside[growing, chosen] = True
            weight[growing] += self.prices[chosen]
            blocked[growing] |= self.apart[chosen]
        met = weight >= self.target
        return self._trimmed(inside[met], weight[met], keys[met]), met

    def _trimmed(
        self, inside: Rows, weight: NDArray[np.float64], keys: NDArray[np.float64]
    ) -> Rows:
        while True:
            vain = inside & (weight[:, None] - self.prices >= self.target)
            shrinking = np.flatnonzero(vain.any(1))
            if not len(shrinking):
                return inside
            out = np.where(vain, keys, np.inf).argmin(1)[shrinking]
            inside[shrinking, out] = False
            weight[shrinking] -= self.prices[out]

    def around(self, chosen: UnitSet, keys: NDArray[np.float64]) -> list[UnitSet]:
        """What swaps make of a set: a unit out, another in, and filled up and trimmed around it.

        Args:
            chosen: A set that meets the target.
            keys: Which units to prefer for filling up; one finite number per unit.
        """
        units = len(self.prices)
        inside = np.zeros(units, bool)
        inside[list(chosen)] = True
        rows, wanted = [], []
        for out in chosen:
            rest = inside.copy()
            rest[out] = False
            for into in np.flatnonzero(~(rest @ self.apart)):
                if into != out:
                    row, key = rest.copy(), keys.copy()
                    row[into], key[into], key[out] = True, FIRST, -np.inf
                    rows.append(row)
                    wanted.append(key)
        if not rows:
            return []
        found = sets_of(self.completed(np.array(rows), np.array(wanted))[0])
        return [units for units in found if units != chosen]
