"""Prior-guided Bayesian optimisation: a Gaussian process learns how removals interact.

After Rethinking Layer Redundancy (2604.24938), which states 200 trials and 10 initial sets, and no
more. The rest is filled in here:

- Prior: see `shoal.searches.prior`; it is what the single removals say.
- Initial sets: the one-shot set, and distinct sets drawn from the prior. They count as trials.
- Surrogate: `shoal.searches.gaussian_process` on the Hamming distance between sets. Its trend is
  the additive one, the loss of the dense model plus c sum_{i in S} (s_i - that loss) with c fitted,
  so the process learns the interactions alone. It sees sets of k units only.
- Acquisition: each further trial evaluates the new set of the largest expected improvement among
  some sets drawn from the prior and all one-swap neighbours of the best set so far; the first of
  equals. Where all sets of k units are fewer than the draws, or half of them is known, all are
  looked at.

A loss that is not finite counts as the worst finite one, for the process and for its trend. Where
all candidates are known, a set is drawn uniformly; the search ends early when that brings no new
one.

Cost: at most N + trials evaluations for N removable units; the surrogate takes about 30 ms a trial
for 32 units and 200 trials. Trials are single masks, so they share less work than a generation of
the genetic search.

Where units overlap, sets are drawn unit by unit among those that still fit. Under a weight they are
drawn until the target is met, and units in vain put back, the least wanted first; the same is done
around each swap, so that neighbours may differ in size. The one-shot set and the prior go by the
increase per price. The kernel, the trend and the improvement are those of sets of any size, and
complete sets compare by loss alone. The cost is the same.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shoal.config.searches import BayesConfig
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.searches.base import Problem, SearchRun, best_of
from shoal.searches.cover import Cover
from shoal.searches.draws import fresh
from shoal.searches.prior import drawn_set, unit_scores, weights_of
from shoal.searches.ranking import top_k
from shoal.searches.unit_sets import (
    UnitSet,
    indicators,
    mask_of,
    sets_of,
    swapped,
    units_of,
)


def bayes(problem: Problem, config: BayesConfig) -> SearchRun:
    """Evaluate the sets that promise most, one by one, and return the best."""
    space = problem.space
    [dense] = yield [space.dense]
    singles = yield [space.dense.without(unit) for unit in space.units]
    weights = weights_of(unit_scores(space, problem.budget, singles, dense.mean))
    proposer = Proposer(problem, config.pool, weights, _excess(dense, singles))
    proposer.learn(e for e in singles if problem.is_answer(e.mask))
    initial = proposer.initial(singles, min(config.initial, config.trials), dense.mean)
    if initial:
        proposer.learn((yield initial))
    for _ in range(config.trials - len(initial)):
        mask = proposer.next(dense)
        if mask is None:
            break
        proposer.learn((yield [mask]))
    return proposer.best.mask


@dataclass
class Proposer:
    """Chooses what to evaluate next.

    Attributes:
        problem: What is searched.
        pool: How many sets are drawn for each choice.
        weights: The prior: one positive weight per unit.
        excess: What each unit costs alone.
        known: Every answer that has been evaluated.
    """

    problem: Problem
    pool: int
    weights: NDArray[np.float64]
    excess: NDArray[np.float64]
    known: dict[UnitSet, Evaluation] = field(default_factory=dict)

    @property
    def space(self) -> SearchSpace:
        """What may be removed."""
        return self.problem.space

    @property
    def best(self) -> Evaluation:
        """The best evaluation so far."""
        return best_of(list(self.known.values()))

    def learn(self, evaluations: Iterable[Evaluation]) -> None:
        """Take note of evaluations."""
        self.known.update({units_of(self.space, e.mask): e for e in evaluations})

    def initial(self, singles: Sequence[Evaluation], count: int, dense: float = 0.0) -> list[Mask]:
        """The one-shot set and sets drawn from the prior, as far as they are not known."""
        known = [e.mask for e in self.known.values()]
        losses, budget = [e.rank_key for e in singles], self.problem.budget
        one_shot = top_k(self.space, losses, budget, dense)
        first = [] if one_shot is None or one_shot in known else [one_shot]
        most = len(known) + count
        wanted = min(count, budget.size(self.space, most) - len(known)) - len(first)
        return first + fresh(self._from_prior, wanted, {*first, *known})

    def next(self, dense: Evaluation) -> Mask | None:
        """The new set of the largest expected improvement, or None where no new set is found."""
        candidates = [s for s in dict.fromkeys(self._candidates()) if s not in self.known]
        for i in np.argsort(-self._promise(candidates, dense.mean), kind="stable"):
            mask = mask_of(self.space, candidates[i])
            if mask is not None and self.problem.is_answer(mask):
                return mask
        known = {e.mask for e in self.known.values()}
        return next(iter(fresh(self._uniform, 1, known)), None)

    def _candidates(self) -> Iterable[UnitSet]:
        space, budget = self.space, self.problem.budget
        few = max(self.pool, 2 * len(self.known))
        if budget.size(space, few) <= few:
            return self._all
        units = len(space.units)
        noise = self.problem.rng.gumbel(size=(self.pool, units))
        keys, best = np.log(self.weights) + noise, units_of(space, self.best.mask)
        if space.overlapping or not budget.uniform:
            drawn_sets, _ = self._cover.completed(np.zeros(keys.shape, bool), keys)
            return [*sets_of(drawn_sets), *self._cover.around(best, np.log(self.weights))]
        # Gumbel top-k, for the whole pool at once.
        k = self.problem.k
        drawn = np.argpartition(-keys, k - 1, axis=1)[:, :k]
        around = swapped(best, units)
        return map(tuple, np.concatenate([np.sort(drawn, axis=1), around]).tolist())

    @cached_property
    def _cover(self) -> Cover:
        return Cover.of(self.space, self.problem.budget)

    @cached_property
    def _all(self) -> list[UnitSet]:
        return [units_of(self.space, mask) for mask in self.problem.budget.masks(self.space)]

    def _promise(self, candidates: Sequence[UnitSet], dense: float) -> NDArray[np.float64]:
        """Expected improvement of each candidate; none where there is nothing to learn from."""
        from shoal.searches.gaussian_process import GaussianProcess, expected_improvement

        y = clamped([e.rank_key for e in self.known.values()]) - dense
        if not candidates or not self.best.finite:
            return np.zeros(len(candidates))
        x, ahead = self._rows(self.known), self._rows(candidates)
        process = GaussianProcess.fitted(x, y, x @ self.excess)
        mean, std = process.predict(ahead, ahead @ self.excess)
        return expected_improvement(mean, std, float(y.min()))

    def _rows(self, sets: Iterable[UnitSet]) -> NDArray[np.float64]:
        return indicators(sets, len(self.space.units)).astype(float)

    def _from_prior(self) -> Mask:
        return drawn_set(self.space, self.problem.rng, self.weights, self.problem.budget)

    def _uniform(self) -> Mask:
        flat = np.ones(len(self.weights))
        return drawn_set(self.space, self.problem.rng, flat, self.problem.budget)


def clamped(losses: Sequence[float]) -> NDArray[np.float64]:
    """Losses with the worst finite one in place of those that are not finite; else all NaN."""
    values = np.array(losses, float)
    finite = np.isfinite(values)
    return np.where(finite, values, values[finite].max() if finite.any() else np.nan)


def _excess(dense: Evaluation, singles: Sequence[Evaluation]) -> NDArray[np.float64]:
    """What each unit costs alone; nothing where no single removal has a finite loss."""
    return np.nan_to_num(clamped([e.rank_key for e in singles]) - dense.mean)
