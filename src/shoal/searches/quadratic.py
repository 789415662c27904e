"""A quadratic model of the loss over sets of exactly k units, and its lowest states.

    E(S) = sum_{i in S} a_i + sum_{i < j in S} b_ij,    |S| = k.

The model comes from measured losses of single and double removals (`from_losses`) or from
per-example gradients by the units' gates (`from_gradients`). Neither depends on k.

Lowest states: where there are few sets they are enumerated. Else `anneal` runs a swap heat bath:
take one unit of the set out, put one in with probability proportional to exp(-E / T), lower T. A
swap keeps the count, so no penalty for the wrong count has to be tuned, as QUBO solvers need.
`closure` then adds all one-swap neighbours of the lowest states until these have no lower ones.

For sets of different sizes, as a weight makes them, see `shoal.searches.quadratic_cover`.

No evaluation of the model under search is spent here.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import chain, combinations, islice
from math import comb
from typing import Self

import numpy as np
from numpy.typing import NDArray

from shoal.searches.unit_sets import UnitSet, indicators, swapped

ENUMERABLE = 200_000
"""Up to so many sets are looked at one by one."""

SWEEPS = 100
"""Temperatures of an annealing run; at each, as many swaps as there are units in the set."""

COOLEST = 1e-3
"""The last temperature, as a share of the first."""

GATHERED = 4_000_000
"""Couplings gathered at once; bounds the memory."""

Accept = Callable[[UnitSet], bool]
"""Whether a set may be a state."""

Around = Callable[[UnitSet], Sequence[UnitSet]]
"""The neighbours of a set."""


@dataclass(frozen=True)
class Quadratic:
    """E(S) = sum of the linear terms of S and of the couplings of the pairs in S.

    Attributes:
        linear: One term per unit [N].
        couplings: One term per pair; symmetric with a zero diagonal [N, N].
    """

    linear: NDArray[np.float64]
    couplings: NDArray[np.float64]

    @classmethod
    def from_losses(
        cls, dense: float, singles: NDArray[np.float64], pairs: NDArray[np.float64]
    ) -> Self:
        """The model that is exact for one and two removals.

        a_i = Delta_i and b_ij = Delta_ij - Delta_i - Delta_j, where Delta is the loss minus that of
        the dense model. A removal without a finite loss costs more than all finite terms together,
        so a state has as few of these as it can.

        Args:
            dense: Loss of the dense model.
            singles: Loss without each unit [N].
            pairs: Loss without each pair, read above the diagonal; -inf where a pair was not
                measured, which gets no coupling [N, N].
        """
        single = np.isfinite(singles)
        linear = np.where(single, singles, dense) - dense
        measured = np.triu(pairs != -np.inf, 1) & single & single[:, None]
        finite = measured & np.isfinite(pairs)
        upper = np.where(finite, np.where(finite, pairs, 0.0) - dense, 0.0)
        upper -= np.where(finite, linear + linear[:, None], 0.0)
        large = 1.0 + 2.0 * float(np.abs(linear).sum() + np.abs(upper).sum())
        linear[~single] = large
        upper[measured & ~finite] = large
        return cls(linear, upper + upper.T)

    @classmethod
    def from_gradients(cls, gradients: NDArray[np.float64], *, first_order: bool = False) -> Self:
        """The second-order model of the loss in the gates, with H = A^T A / m for the Hessian.

        Without the first order E(S) = x^T H x = mean_s (sum_{i in S} g_si)^2; with it
        E(S) = -sum_{i in S} mean_s g_si + x^T H x / 2, as removing turns a gate from 1 to 0.

        Args:
            gradients: Derivative of each example's loss by each unit's gate: A [m, N].
            first_order: Whether to keep the gradient term.
        """
        hessian = gradients.T @ gradients / len(gradients)
        weight = 0.5 if first_order else 1.0
        linear = weight * np.diag(hessian)
        if first_order:
            linear = linear - gradients.mean(0)
        couplings = 2.0 * weight * hessian
        np.fill_diagonal(couplings, 0.0)
        return cls(linear, couplings)

    @property
    def units(self) -> int:
        """Number of units N."""
        return len(self.linear)

    def energies(self, states: NDArray[np.intp]) -> NDArray[np.float64]:
        """The energy of each row of unit indices [m, k]."""
        pairs = self.couplings[states[:, :, None], states[:, None, :]]
        return self.linear[states].sum(1) + 0.5 * pairs.sum((1, 2))

    def energy(self, state: UnitSet) -> float:
        """The energy of one set."""
        return float(self.energies(np.array([state], np.intp))[0])

    def energies_of(self, rows: NDArray[np.bool_]) -> NDArray[np.float64]:
        """The energy of each row of a binary matrix; for sets of different sizes [m, N]."""
        x = rows.astype(float)
        return np.asarray(x @ self.linear + 0.5 * ((x @ self.couplings) * x).sum(1))


@dataclass(frozen=True)
class Solved:
    """The lowest states of a model.

    Attributes:
        states: Ascending.
        certificate: What is proven about the first, in words.
    """

    states: list[UnitSet]
    certificate: str


def enumerate_lowest(
    model: Quadratic,
    k: int,
    count: int,
    accept: Accept | None = None,
    apart: NDArray[np.bool_] | None = None,
) -> list[UnitSet]:
    """The `count` lowest states of k units, by looking at all; the first of equals first."""
    flat = chain.from_iterable(combinations(range(model.units), k))
    states = np.fromiter(flat, np.intp, comb(model.units, k) * k).reshape(-1, k)
    if apart is not None:
        for one, other in combinations(range(k), 2):
            states = states[~apart[states[:, one], states[:, other]]]
    chunks = np.array_split(states, 1 + states.size * k // GATHERED)
    energies = np.concatenate([model.energies(chunk) for chunk in chunks])
    ascending = (tuple(states[i].tolist()) for i in np.argsort(energies, kind="stable"))
    return list(islice(filter(accept, ascending) if accept else ascending, count))


def anneal_lowest(
    model: Quadratic,
    starts: Iterable[UnitSet],
    count: int,
    rng: np.random.Generator,
    accept: Accept | None = None,
    apart: NDArray[np.bool_] | None = None,
) -> list[UnitSet]:
    """The `count` lowest states that annealing and the neighbours of the lowest ones show.

    Args:
        model: The energies.
        starts: Where the runs begin, one each; all of the same size and acceptable.
        count: States wanted; fewer come back where no more are found.
        rng: Source of randomness.
        accept: Which sets may be states; None for all.
        apart: Which pairs of units never go together; None for none.
    """
    return closure(model, anneal(model, list(starts), rng, accept, apart), count, accept)


def anneal(
    model: Quadratic,
    starts: list[UnitSet],
    rng: np.random.Generator,
    accept: Accept | None = None,
    apart: NDArray[np.bool_] | None = None,
) -> list[UnitSet]:
    """Run the swap heat bath from every start, all side by side, and return where they end."""
    runs, k = np.arange(len(starts)), len(starts[0])
    inside = indicators(starts, model.units)
    field = model.linear + inside @ model.couplings
    for temperature in temperatures(field, k):
        # What unit i would bring besides the rest of the set is field_i.
        out = np.where(inside, rng.random(inside.shape), -1.0).argmax(1)
        inside[runs, out] = False
        field -= model.couplings[out]
        # Gumbel noise turns a maximum into a draw from exp(-field / T).
        noisy = rng.gumbel(size=inside.shape) - field / temperature
        closed = inside if apart is None else inside | (inside @ apart)
        into = np.where(closed, -np.inf, noisy).argmax(1)
        if accept is not None:
            refused = [not accept(_grown(row, j)) for row, j in zip(inside, into, strict=True)]
            into = np.where(refused, out, into)
        inside[runs, into] = True
        field += model.couplings[into]
    return [_grown(row) for row in inside]


def closure(
    model: Quadratic,
    found: Iterable[UnitSet],
    count: int,
    accept: Accept | None = None,
    around: Around | None = None,
) -> list[UnitSet]:
    """The `count` lowest of some states and of what one swap makes of the lowest, again and again.

    Args:
        model: The energies.
        found: Where to begin; acceptable.
        count: States wanted; fewer come back where no more are found.
        accept: Which sets may be states; None for all.
        around: The neighbours of a set, in place of all swaps.

    Returns:
        Ascending; none has an acceptable neighbour that is lower than the last and not among them.
    """
    energy = {state: model.energy(state) for state in found}
    expanded: set[UnitSet] = set()
    while True:
        lowest = nsmallest(count, energy, key=lambda state: (energy[state], state))
        fresh = [state for state in lowest if state not in expanded]
        if not fresh:
            return lowest
        limit = energy[lowest[-1]] if len(lowest) == count else np.inf
        for state in fresh:
            expanded.add(state)
            if around is None:
                rows = swapped(state, model.units)
                energies, neighbours = model.energies(rows), rows.tolist()
            else:
                neighbours = around(state)
                energies = model.energies_of(indicators(neighbours, model.units))
            for i in np.flatnonzero(energies <= limit):
                neighbour = tuple(neighbours[i])
                if neighbour not in energy and (accept is None or accept(neighbour)):
                    energy[neighbour] = float(energies[i])


def temperatures(field: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """From what swaps typically change down to a small share of it, each k times.

    The median keeps prohibitive terms out of the scale as long as they are the fewer.
    """
    spread = np.abs(field - np.median(field, axis=1, keepdims=True))
    typical = float(np.median(spread[spread > 0])) if spread.any() else 1.0
    return np.repeat(np.geomspace(typical, COOLEST * typical, SWEEPS), k)


def _grown(inside: NDArray[np.bool_], *more: int) -> UnitSet:
    return tuple(sorted([*np.flatnonzero(inside).tolist(), *map(int, more)]))
