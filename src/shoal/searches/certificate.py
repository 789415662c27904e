"""How low a quadratic over sets that meet a budget can be, proven by integer programming.

The standard linearisation: binary x_i, and y_ij in [0, 1] for the product x_i x_j. Minimising
pushes y_ij up where the coupling is negative and down where it is positive, so each sign needs its
own side only: y_ij <= x_i and y_ij <= x_j, or y_ij >= x_i + x_j - 1. Every chosen unit has k - 1
chosen partners,

    sum_{j != i} y_ij = (k - 1) x_i    for every i,

which the products satisfy and which alone makes y exact at binary x; it is what makes the bound
useful. Units that overlap exclude each other: x_i + x_j <= 1. HiGHS (`scipy.optimize.milp`) solves
it.

Under a weight, with prices p and a target t, the count is replaced by p x >= t, by the condition
that no unit is in vain, and by both of them times x_i, which takes the place of the k - 1 partners:

    t x_i <= p_i x_i + sum_{j != i} p_j y_ij    and    sum_{j != i} p_j y_ij <= t x_i.

The proof holds to 1e-6 of a typical term. It is about the model of the loss, not about the loss. No
evaluation is spent.
"""

from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.searches.cover import Cover
from shoal.searches.quadratic import Quadratic
from shoal.searches.unit_sets import UnitSet

TOLERANCE = 2e-6
"""Energies closer than this, in typical terms, are equal; the solver stops at half of it."""


@dataclass(frozen=True)
class Certificate:
    """What is proven about a state.

    Attributes:
        state: The lowest state known: the given one, or a lower one that the proof brought up.
        bound: No set of k units has a lower energy; -inf where nothing was proven.
        text: The finding in words.
    """

    state: UnitSet
    bound: float
    text: str


def certify(
    model: Quadratic,
    state: UnitSet,
    seconds: float,
    *,
    apart: NDArray[np.bool_] | None = None,
    cover: Cover | None = None,
) -> Certificate:
    """Compare a state with the optimum over all sets of its size, or all that meet a weight.

    Args:
        model: The energies.
        state: The state thought to be the lowest.
        seconds: Time limit; a bound that was proven within it counts.
        apart: Which pairs of units never go together; None for none.
        cover: What a set must meet in place of the state's size.
    """
    scale = _scale(model)
    rows = _Rows(model, np.eye(model.units, dtype=bool) if apart is None else apart)
    wanted = rows.of_count(len(state)) if cover is None else rows.of_weight(cover)
    solved = _solve(model, [*wanted, *rows.of_products(), *rows.of_pairs()], scale, seconds)
    dual = getattr(solved, "mip_dual_bound", None)
    bound = scale * float(dual) if dual is not None and isfinite(dual) else -np.inf
    best, energy = state, model.energy(state)
    if solved.x is not None:
        chosen = tuple(np.flatnonzero(solved.x[: model.units] > 0.5).tolist())
        if model.energy(chosen) < energy - TOLERANCE * scale:
            best, energy = chosen, model.energy(chosen)
    return Certificate(best, bound, _text(energy - bound, TOLERANCE * scale, seconds))


def _text(gap: float, tolerance: float, seconds: float) -> str:
    if gap <= tolerance:
        return "lowest state proven optimal (milp)"
    if isfinite(gap):
        return f"lowest state proven to be within {gap:.3g} of the optimum (milp, {seconds:g} s)"
    return f"lowest state not proven optimal in {seconds:g} s (milp)"


def _scale(model: Quadratic) -> float:
    """The size of a typical term; the solver's tolerances are absolute and made for 1."""
    terms = np.abs(np.concatenate([model.linear, model.couplings.ravel()]))
    return float(np.median(terms[terms > 0])) if terms.any() else 1.0


def _solve(model: Quadratic, rows: list[Any], scale: float, seconds: float) -> Any:
    from scipy.optimize import Bounds, milp

    units, (first, second) = model.units, np.triu_indices(model.units, 1)
    couplings = model.couplings[first, second]
    terms = np.concatenate([model.linear, couplings]) / scale
    return milp(
        terms,
        integrality=np.concatenate([np.ones(units), np.zeros(len(couplings))]),
        bounds=Bounds(0.0, 1.0),
        constraints=rows,
        options={"time_limit": seconds, "mip_rel_gap": 0.0},
    )


class _Rows:
    """The rows of the module's docstring over the columns x_0 .. x_N-1, y_01, y_02, ..."""

    def __init__(self, model: Quadratic, apart: NDArray[np.bool_]) -> None:
        self.units = model.units
        self.first, self.second = np.triu_indices(model.units, 1)
        self.couplings = model.couplings[self.first, self.second]
        self.excluded = np.flatnonzero(apart[self.first, self.second])
        self.x_first, self.x_second = self._at(self.first), self._at(self.second)

    def _at(self, columns: NDArray[np.intp], width: int | None = None) -> Any:
        from scipy.sparse import csr_array

        ones, rows = np.ones(len(columns)), np.arange(len(columns))
        return csr_array((ones, (rows, columns)), shape=(len(columns), width or self.units))

    def _between(self, least: float, x: Any, y: Any, most: float) -> Any:
        from scipy.optimize import LinearConstraint
        from scipy.sparse import csr_array, hstack

        return LinearConstraint(csr_array(hstack([csr_array(x), csr_array(y)])), least, most)

    @property
    def _y(self) -> Any:
        pairs = len(self.couplings)
        return self._at(np.arange(pairs), pairs)

    def of_products(self) -> list[Any]:
        """What holds y to the product, on the side to which it is pushed."""
        down, up = np.flatnonzero(self.couplings < 0), np.flatnonzero(self.couplings > 0)
        x_first, x_second, y = self.x_first, self.x_second, self._y
        return [
            self._between(-np.inf, -x_first[down], y[down], 0.0),
            self._between(-np.inf, -x_second[down], y[down], 0.0),
            self._between(-np.inf, (x_first + x_second)[up], -y[up], 1.0),
        ]

    def of_pairs(self) -> list[Any]:
        """Units that overlap do not go together."""
        if not len(self.excluded):
            return []
        either = (self.x_first + self.x_second)[self.excluded]
        return [self._between(-np.inf, either, 0.0 * self._y[self.excluded], 1.0)]

    def of_count(self, k: int) -> list[Any]:
        """Exactly k units, each with k - 1 partners."""
        every = self._at(np.arange(self.units))
        partners = (self.x_first + self.x_second).T
        ones = np.ones((1, self.units))
        return [
            self._between(k, ones, np.zeros((1, len(self.couplings))), k),
            self._between(0.0, -(k - 1) * every, partners, 0.0),
        ]

    def of_weight(self, cover: Cover) -> list[Any]:
        """At least the target, and no unit in vain."""
        from scipy.sparse import diags_array

        prices, target = cover.prices, cover.target
        every, own = self._at(np.arange(self.units)), diags_array(prices)
        # Row i holds the prices of i's partners at their y.
        theirs = self.x_first.T @ diags_array(prices[self.second]) + self.x_second.T @ diags_array(
            prices[self.first]
        )
        nothing, total = 0.0 * theirs, float(prices.sum())
        without = np.ones((self.units, 1)) * prices - np.diag(prices)
        loose = max(total - target, 0.0)
        return [
            self._between(target, prices[None, :], np.zeros((1, len(self.couplings))), np.inf),
            self._between(-np.inf, without + loose * np.eye(self.units), nothing, target + loose),
            self._between(0.0, own - target * every, theirs, np.inf),
            self._between(-np.inf, -target * every, theirs, 0.0),
        ]
