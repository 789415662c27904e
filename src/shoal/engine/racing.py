"""Racing: the candidates of a contest run on growing parts of the data, and the hopeless stop.

Races stop the evaluation of candidates that are known to be worse than the best: Maron and Moore
(1993), Hoeffding Races. Candidates are compared example by example, which cancels what all have in
common: Birattari, Stützle, Paquete and Varrentrapp (2002), A Racing Algorithm for Configuring
Metaheuristics, which ranks them (F-race) where this uses a t-test. Here the population is finite,
the calibration set, and those that are left at its end are known exactly.

A contest asks for the best w of its N masks. After each part the w with the least mean so far lead.
A mask is dropped if it is worse than every one of them by a one-sided paired t-test at level

    error_rate / (contests * stages * w * (N - w))

Why that is enough: one of the true best w can only be dropped wrongly. Of the w leaders that it
then lost to, at least one is not among the true best w, so that its true mean is no smaller. There
are w (N - w) such pairs and `stages` tests of each, so the chance that any of them errs is at most
error_rate / contests, and that it happens in any contest of a search at most error_rate.

What this assumes: each part is a simple random sample, and the mean difference of a pair divided by
its standard error is distributed about like Student's t far into the tail. Losses that differ on a
few examples only, and much on those, need larger samples than racing starts with; no test that
looks at a few examples can know of such examples elsewhere. Under the assumption the bound is
cautious, since most pairs are not close.

A mask whose loss is not finite on a part has none on the whole either, so it is dropped for good;
if a leader turns out so, whatever was dropped for it returns.
"""

from collections.abc import Sequence

import numpy as np

from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask
from shoal.core.partition import MINIMUM
from shoal.engine.evaluator import Evaluator
from shoal.engine.partials import Partials
from shoal.engine.race import Race, Track
from shoal.engine.savings import Savings
from shoal.searches.base import Contest


class Racer:
    """Evaluates contests by races, and everything else in full.

    Losses of parts are stored as soon as they are computed. What a race decides follows from the
    losses and the parts alone, not from what was known before, so a stopped search goes on where it
    stopped and decides the same. A mask that is known completely takes part at no cost.

    Args:
        evaluator: Computes losses.
        error_rate: Chance that a search loses, in any of its contests, a mask of the best.
        contests: Contests that the search has at most; those beyond it are evaluated in full.
        shared: Whether masks share block passes; it matters for the report only.

    Attributes:
        savings: What racing saved.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        error_rate: float = 0.05,
        contests: int = 1,
        shared: bool = True,
    ) -> None:
        self.evaluator, self.error_rate, self.contests = evaluator, error_rate, contests
        objective = evaluator.objective
        examples = tuple(
            tuple(sorted(e for index in part for e in objective.batches[index].examples))
            for part in objective.parts
        )
        weights = objective.weights
        self._track = Track(
            objective.parts,
            examples,
            np.ones(objective.num_examples) if weights is None else np.asarray(weights, float),
        )
        self._partials = Partials(evaluator.store, examples)
        self._held = 0
        self.savings = Savings([len(part) for part in examples], shared)

    def evaluate(self, masks: Sequence[Mask]) -> list[Evaluation]:
        """One evaluation per mask, in the same order; of a contest only the best are complete.

        Raises:
            UsageError: If a mask removes parts of blocks.
        """
        distinct = list(dict.fromkeys(masks))
        level = self._level(masks, len(distinct))
        if not isinstance(masks, Contest) or level is None:
            self.savings.add_full(distinct)
            return self.evaluator.evaluate(masks)
        self._held += 1
        race = Race(
            self.evaluator, self._partials, self._track, distinct, masks.winners, level, MINIMUM
        )
        found = race.run()
        self.savings.add_race({e.mask: e.parts for e in race.entrants})
        return [found[mask] for mask in masks]

    def summary(self) -> str:
        """What racing saved, in one sentence."""
        saved = self.savings
        if not saved.candidates:
            return "racing: no contest was large enough to be raced"
        return (
            f"racing: {saved.completed} of {saved.candidates} candidates evaluated in full; "
            f"{saved.factor:.1f}x fewer block passes than full evaluation would take, "
            f"error rate at most {self.error_rate:.2g} per search"
        )

    def _level(self, masks: Sequence[Mask], count: int) -> float | None:
        """The level of each test of a contest; None where there is no race."""
        if not isinstance(masks, Contest) or self._held == self.contests:
            return None
        sizes = np.cumsum([len(part) for part in self._track.examples])[:-1]
        stages = int((sizes >= MINIMUM).sum())
        pairs = masks.winners * (count - masks.winners)
        if stages == 0 or pairs <= 0:
            return None
        return self.error_rate / (self.contests * stages * pairs)
