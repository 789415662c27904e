"""A weighted mixture of objectives: every term keeps its own evaluations, the sum is formed here.

With L_t the mean loss of term t, w_t its weight, and `span` normalisation

    L(S) = sum_t w_t (L_t(S) - L_t(dense)) / span_t
    span_t = sqrt(mean over R of (L_t(R) - L_t(dense))^2)

with R a few random masks that remove as many units as the search does. So for every term 0 is the
dense model and 1 the size of what removing blindly does, whatever the term's units are, and also
where removal may lower a loss, as it does margins of small models. `raw` is
sum_t w_t L_t(S). Terms have examples of their own, so the standard error is
sqrt(sum_t w_t^2 s_t^2).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot

import numpy as np
from numpy.typing import NDArray

from shoal.core.errors import UsageError
from shoal.core.evaluation import Cost, Evaluation
from shoal.core.mask import Mask
from shoal.engine.evaluator import Evaluator
from shoal.engine.runners import Passes
from shoal.searches.base import Signals


@dataclass(frozen=True)
class MixedTerm:
    """One term.

    Attributes:
        weight: Its weight.
        evaluator: Its evaluator.
    """

    weight: float
    evaluator: Evaluator


class MixtureEvaluator:
    """Evaluates masks under a mixture.

    Args:
        terms: The terms.
        random: Random masks that say what 1 is; none for raw losses.
    """

    def __init__(self, terms: Sequence[MixedTerm], random: Sequence[Mask] = ()) -> None:
        self.terms = tuple(terms)
        self._random = tuple(random)
        self._scales: list[tuple[float, float]] | None = None

    @property
    def passes(self) -> Passes:
        """Work done so far by all terms."""
        total = Passes()
        for term in self.terms:
            total = total + term.evaluator.passes
        return total

    @property
    def not_finite(self) -> list[Mask]:
        """Masks whose loss is not finite under some term."""
        return list(dict.fromkeys(m for t in self.terms for m in t.evaluator.not_finite))

    def scales(self) -> list[tuple[float, float]]:
        """For each term what is subtracted from its loss, and what that is divided by.

        Raises:
            UsageError: If random masks change nothing under some term.
        """
        if not self._random:
            return [(0.0, 1.0)] * len(self.terms)
        if self._scales is None:
            self._scales = [self._span(t.evaluator) for t in self.terms]
        return self._scales

    def _span(self, evaluator: Evaluator) -> tuple[float, float]:
        dense, *random = evaluator.evaluate([Mask.dense(self._random[0].depth), *self._random])
        gaps = [e.mean - dense.mean for e in random if e.finite]
        span = float(np.sqrt(np.mean(np.square(gaps)))) if gaps else 0.0
        if not span > 0:
            raise UsageError(
                f"{evaluator.objective.expression} cannot be normalised: removing random blocks "
                f"leaves its loss at the dense model's {dense.mean:.4g}. Leave the term out, give "
                "it more examples, or use --objective.normalise raw."
            )
        return dense.mean, span

    def evaluate(self, masks: Sequence[Mask]) -> list[Evaluation]:
        """Evaluate masks.

        Returns:
            One evaluation per mask, in the same order; its losses are the scaled ones of all
            terms, one term after another.
        """
        scales = self.scales()
        by_term = [term.evaluator.evaluate(masks) for term in self.terms]
        return [self._joined(list(found), scales) for found in zip(*by_term, strict=True)]

    def _joined(self, found: list[Evaluation], scales: list[tuple[float, float]]) -> Evaluation:
        mean, error, cost = 0.0, 0.0, Cost()
        losses: list[float] = []
        for term, evaluation, (zero, span) in zip(self.terms, found, scales, strict=True):
            mean += term.weight * (evaluation.mean - zero) / span
            error = hypot(error, term.weight * evaluation.stderr / span)
            losses += [(x - zero) / span for x in evaluation.losses]
            cost += evaluation.cost
        return Evaluation(found[0].mask, tuple(losses), mean, error, cost=cost)


class MixtureSignals:
    """State scores of a mixture: those on the data of each term, averaged by weight.

    Args:
        weights: The weight of each term.
        signals: The signals of each term.
    """

    def __init__(self, weights: Sequence[float], signals: Sequence[Signals]) -> None:
        self._weights, self._signals = weights, signals

    def units(self, name: str) -> Sequence[float]:
        """A state score per unit."""
        return self._average([s.units(name) for s in self._signals])

    def windows(self, name: str, length: int) -> Sequence[float]:
        """A state score per window of blocks."""
        return self._average([s.windows(name, length) for s in self._signals])

    def gradients(self) -> NDArray[np.float64]:
        """Refused: the examples of different terms do not form one matrix.

        Raises:
            UsageError: Always.
        """
        raise UsageError(
            "the gradient form needs a single objective, not a mixture. Use --search.form pairwise."
        )

    def _average(self, scores: list[Sequence[float]]) -> list[float]:
        average: list[float] = np.average(
            np.asarray(scores), axis=0, weights=self._weights
        ).tolist()
        return average
