"""How low a quadratic over sets of exactly k units can be, proven by integer programming.

The standard linearisation: binary x_i, and y_ij in [0, 1] for the product x_i x_j. Minimising
pushes y_ij up where the coupling is negative and down where it is positive, so each sign needs its
own side only: y_ij <= x_i and y_ij <= x_j, or y_ij >= x_i + x_j - 1. Every chosen unit has k - 1
chosen partners,

    sum_{j != i} y_ij = (k - 1) x_i    for every i,

which the products satisfy and which alone makes y exact at binary x; it is what makes the bound
useful. HiGHS (`scipy.optimize.milp`) solves it.

The proof holds to 1e-6 of a typical term. It is about the model of the loss, not about the loss. No
evaluation is spent.
"""

from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

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


def certify(model: Quadratic, state: UnitSet, seconds: float) -> Certificate:
    """Compare a state with the optimum over all sets of its size.

    Args:
        model: The energies.
        state: The state thought to be the lowest.
        seconds: Time limit; a bound that was proven within it counts.
    """
    scale = _scale(model)
    solved = _solve(model, len(state), scale, seconds)
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


def _solve(model: Quadratic, k: int, scale: float, seconds: float) -> Any:
    from scipy.optimize import Bounds, milp

    units, (first, second) = model.units, np.triu_indices(model.units, 1)
    couplings = model.couplings[first, second]
    terms = np.concatenate([model.linear, couplings]) / scale
    return milp(
        terms,
        integrality=np.concatenate([np.ones(units), np.zeros(len(couplings))]),
        bounds=Bounds(0.0, 1.0),
        constraints=_constraints(units, k, first, second, couplings),
        options={"time_limit": seconds, "mip_rel_gap": 0.0},
    )


def _constraints(
    units: int,
    k: int,
    first: NDArray[np.intp],
    second: NDArray[np.intp],
    couplings: NDArray[np.float64],
) -> list[Any]:
    """The rows of the module's docstring over the columns x_0 .. x_N-1, y_01, y_02, ..."""
    from scipy.optimize import LinearConstraint
    from scipy.sparse import csr_array, hstack

    def at(columns: NDArray[np.intp], width: int) -> Any:
        ones, rows = np.ones(len(columns)), np.arange(len(columns))
        return csr_array((ones, (rows, columns)), shape=(len(columns), width))

    pairs = len(couplings)
    x_first, x_second, y = at(first, units), at(second, units), at(np.arange(pairs), pairs)
    down, up = np.flatnonzero(couplings < 0), np.flatnonzero(couplings > 0)
    partners = hstack([-(k - 1) * at(np.arange(units), units), (x_first + x_second).T])
    count = np.concatenate([np.ones(units), np.zeros(pairs)])[None, :]
    return [
        LinearConstraint(csr_array(count), k, k),
        LinearConstraint(csr_array(partners), 0.0, 0.0),
        LinearConstraint(csr_array(hstack([-x_first, y]))[down], -np.inf, 0.0),
        LinearConstraint(csr_array(hstack([-x_second, y]))[down], -np.inf, 0.0),
        LinearConstraint(csr_array(hstack([x_first + x_second, -y]))[up], -np.inf, 1.0),
    ]
