"""Prior-guided genetic search: an elitist genetic algorithm whose draws favour cheap units.

After Rethinking Layer Redundancy (2604.24938), which states the population (16), the elitism (0.2),
the mutation (0.15) and the 10 generations, and no more. The rest is filled in here:

- Prior: see `shoal.searches.prior`; it is what the single removals say.
- First generation: the one-shot set, and distinct sets drawn from the prior; fewer than the
  population where the prior all but rules out the others.
- Elites: the ceil(elitism population) best sets, at least one, survive unchanged.
- Parents: each is the best of some sets of the generation drawn without replacement.
- Crossover: what both parents remove stays removed; the rest is drawn from what one of them
  removes, by the prior. Where the architecture allows no such set, the first parent stands for it.
- Mutation: each removed unit is, with some probability, swapped for a kept one drawn from the
  prior, where a valid swap exists.

All sets have k units. Children are bred until they are new: no set is evaluated twice. Where
breeding brings too few new sets, as in small spaces, known ones fill up the generation at no cost;
where all are known, the search ends. The result is the best set of k units ever seen.

Cost: at most N + population + generations (population - elites) evaluations for N removable units:
168 for 32 blocks with the defaults.

Under a weight all sets meet the target and have no unit in vain, so they differ in size: wherever
a set is filled up, units are taken until the target is met, and those in vain are put back, the
last one first. The one-shot set and the prior go by the increase per price. The cost is the same.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from shoal.config.searches import GeneticConfig
from shoal.core.budget import Budget
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.searches.base import Problem, SearchRun, best_of
from shoal.searches.draws import fresh
from shoal.searches.prior import drawn_set, shuffled, unit_scores, weights_of
from shoal.searches.ranking import filled, top_k

PATIENCE = 10
"""Children bred per place of the next generation before known sets fill it up."""


def genetic(problem: Problem, config: GeneticConfig) -> SearchRun:
    """Evolve a population of sets and return the best ever seen."""
    space, budget = problem.space, problem.budget
    dense = 0.0 if budget.uniform else (yield [space.dense])[0].mean
    singles = yield [space.dense.without(unit) for unit in space.units]
    weights = weights_of(unit_scores(space, budget, singles, dense))
    breeder = Breeder(space, budget, problem.rng, weights, config, dense)
    known = {e.mask: e for e in singles if problem.is_answer(e.mask)}
    population = breeder.first_generation(singles)
    yield from _learn(population, known)
    for _ in range(config.generations):
        if len(known) == budget.size(space, len(known)):
            break
        ranked = sorted(population, key=lambda mask: known[mask].rank_key)
        population = breeder.next_generation(ranked, known)
        yield from _learn(population, known)
    return best_of(list(known.values())).mask


def _learn(
    masks: Sequence[Mask], known: dict[Mask, Evaluation]
) -> Generator[Sequence[Mask], Sequence[Evaluation], None]:
    """Have the masks evaluated that are not known."""
    if new := [mask for mask in masks if mask not in known]:
        known.update({e.mask: e for e in (yield new)})


@dataclass(frozen=True)
class Breeder:
    """Makes sets that meet a budget out of others.

    Attributes:
        space: The units, and which of them may go together.
        budget: How much a set removes.
        rng: Source of randomness.
        weights: The prior: one positive weight per unit.
        config: Options of the search.
        dense: Loss of the dense model; it matters under a weight.
    """

    space: SearchSpace
    budget: Budget
    rng: np.random.Generator
    weights: NDArray[np.float64]
    config: GeneticConfig
    dense: float = 0.0

    @property
    def elites(self) -> int:
        """How many sets survive a generation."""
        # A share like 0.07 of 100 is meant to be 7, whatever its rounding error.
        return max(1, ceil(self.config.elitism * self.config.population - 1e-9))

    def first_generation(self, singles: Sequence[Evaluation]) -> list[Mask]:
        """The one-shot set, and distinct sets drawn from the prior."""
        losses = [e.rank_key for e in singles]
        one_shot = top_k(self.space, losses, self.budget, self.dense)
        first = [] if one_shot is None else [one_shot]
        most = self.config.population
        wanted = min(most, self.budget.size(self.space, most)) - len(first)
        return first + fresh(self._from_prior, wanted, first)

    def next_generation(self, ranked: Sequence[Mask], known: dict[Mask, Evaluation]) -> list[Mask]:
        """The elites, and children that are new as far as some patience finds them.

        Args:
            ranked: The sets of this generation, the best first.
            known: Everything that has been evaluated.
        """
        elites = list(ranked[: self.elites])
        wanted = self.config.population - len(elites)
        new: dict[Mask, None] = {}
        repeats: dict[Mask, None] = {}
        for _ in range(PATIENCE * wanted):
            if len(new) == wanted:
                break
            child = self.child(ranked)
            if child not in elites:
                (repeats if child in known else new)[child] = None
        return elites + [*new, *repeats][:wanted]

    def child(self, ranked: Sequence[Mask]) -> Mask:
        """A mutated child of two parents chosen by tournament."""
        return self.mutated(self.crossed(self.chosen(ranked), self.chosen(ranked)))

    def chosen(self, ranked: Sequence[Mask]) -> Mask:
        """The best of some drawn sets, of which the best come first."""
        rivals = min(self.config.tournament, len(ranked))
        return ranked[self.rng.choice(len(ranked), size=rivals, replace=False).min()]

    def crossed(self, one: Mask, other: Mask) -> Mask:
        """What both remove, filled up from what one of them removes."""
        ours, theirs = self.space.removed_units(one), self.space.removed_units(other)
        common = self.space.dense.without(s for unit in ours if unit in theirs for s in unit)
        union = {*ours, *theirs}
        order = [i for i in shuffled(self.rng, self.weights) if self.space.units[i] in union]
        child = filled(self.space, common, order, self.budget)
        return one if child is None else child

    def mutated(self, mask: Mask) -> Mask:
        """The mask with each removed unit swapped for a kept one by chance."""
        for unit in self.space.removed_units(mask):
            if self.rng.random() < self.config.mutation:
                if unit not in self.space.removed_units(mask):
                    continue  # a heavier one made it superfluous
                rest = mask.restored(unit)
                # What overlaps with the unit may take its place too.
                kept = {u for u in self.space.free_units(rest) if u != unit}
                order = [i for i in shuffled(self.rng, self.weights) if self.space.units[i] in kept]
                swapped = filled(self.space, rest, order, self.budget)
                mask = mask if swapped is None else swapped
        return mask

    def _from_prior(self) -> Mask:
        return drawn_set(self.space, self.rng, self.weights, self.budget)
