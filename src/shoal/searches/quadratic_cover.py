"""The lowest states of a quadratic model over sets that meet a weight, whatever their size.

Where there are few answers they are enumerated. Else runs are annealed side by side by ruin and
recreate: one unit leaves a set, others are drawn in by what they add to the energy per price until
the target is met, those in vain leave; the change is accepted by the rule of Metropolis. The lowest
state of each run and where it ends are then closed under such exchanges.

No evaluation of the model under search is spent here.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from shoal.searches.cover import Cover
from shoal.searches.quadratic import Accept, Quadratic, closure, temperatures
from shoal.searches.unit_sets import UnitSet, indicators, sets_of


def lowest_of(model: Quadratic, answers: list[UnitSet], count: int) -> list[UnitSet]:
    """The `count` lowest of some sets; the first of equals first."""
    energies = model.energies_of(indicators(answers, model.units))
    return [answers[i] for i in np.argsort(energies, kind="stable")[:count]]


def lowest_around(
    model: Quadratic, cover: Cover, found: Iterable[UnitSet], count: int, accept: Accept
) -> list[UnitSet]:
    """The `count` lowest of some answers and of what exchanges make of the lowest, repeatedly."""

    def around(state: UnitSet) -> list[UnitSet]:
        brought = model.linear + model.couplings[list(state)].sum(0)
        return cover.around(state, -per_price_each(brought, cover.prices))

    return closure(model, found, count, accept, around)


def anneal_cover(
    model: Quadratic, cover: Cover, starts: list[UnitSet], rng: np.random.Generator
) -> list[UnitSet]:
    """Anneal from every start, all side by side.

    Args:
        model: The energies.
        cover: What a set must meet.
        starts: Where the runs begin, one each.
        rng: Source of randomness.

    Returns:
        The lowest state of each run, and where the runs end; constraints are not considered.
    """
    inside = indicators(starts, model.units)
    energy = model.energies_of(inside)
    lowest, least = inside.copy(), energy.copy()
    steps = round(float(inside.sum(1).mean()))
    for temperature in temperatures(model.linear + inside @ model.couplings, steps):
        out = np.where(inside, rng.random(inside.shape), -1.0).argmax(1)
        runs = np.arange(len(inside))
        rest = inside.copy()
        rest[runs, out] = False
        rates = per_price_each(model.linear + rest @ model.couplings, cover.prices)
        noisy = rng.gumbel(size=inside.shape) - rates / temperature
        proposed, met = cover.completed(rest, noisy)
        change = np.full(len(inside), np.inf)
        change[met] = model.energies_of(proposed) - energy[met]
        accepted = np.log(rng.random(len(inside))) < -change / temperature
        inside[accepted] = proposed[accepted[met]]
        energy[accepted] += change[accepted]
        better = energy < least
        lowest[better], least[better] = inside[better], energy[better]
    return sets_of(np.concatenate([lowest, inside]))


def per_price_each(
    increases: NDArray[np.float64], prices: NDArray[np.float64]
) -> NDArray[np.float64]:
    """`shoal.searches.ranking.per_price` of many; a unit without a price comes last."""
    with np.errstate(divide="ignore", invalid="ignore"):
        risen = np.where(prices > 0, increases / prices, np.finfo(float).max)
    return np.where(increases <= 0, increases * prices, risen)
