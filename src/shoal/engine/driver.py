"""Driving a search: feeds it evaluations, keeps to the budget, and checks what it returns."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from shoal.config.searches import SearchConfig
from shoal.core.budget import Budget, Wanted, budget_of
from shoal.core.errors import BudgetError, NotFiniteError
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.engine.ledger import Ledger, TraceRow
from shoal.engine.trie import visiting_order
from shoal.searches.base import Contest, Found, OutOfBudget, Problem, SearchRun, Signals

SLICE = 0.05
"""Share of a time budget after which the clock is looked at within a batch."""


class MaskEvaluator(Protocol):
    """Whatever turns masks into evaluations."""

    def evaluate(self, masks: Sequence[Mask]) -> list[Evaluation]:
        """One evaluation per mask, in the same order."""
        ...


@dataclass(frozen=True)
class Limits:
    """A budget.

    Attributes:
        evaluations: Most distinct masks; the dense one comes on top.
        seconds: Most wall time of this process; a batch of a contest may run over it.
    """

    evaluations: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Outcome:
    """What a search found.

    Attributes:
        best: The evaluation of the mask that it returned.
        dense: The evaluation of the dense model.
        evaluations: Distinct masks that the search asked for; the dense one comes on top.
        trace: Best loss of each batch.
        details: What the search says about its result.
        stopped: The budget that ended it, or None.
    """

    best: Evaluation
    dense: Evaluation
    evaluations: int
    trace: tuple[float, ...]
    details: dict[str, Any] = field(default_factory=dict)
    stopped: str | None = None


def drive(
    config: SearchConfig,
    space: SearchSpace,
    k: Wanted,
    seed: int,
    evaluator: MaskEvaluator,
    signals: Signals,
    *,
    limits: Limits = Limits(),
    on_batch: Callable[[Sequence[TraceRow], Evaluation], None] | None = None,
) -> Outcome:
    """Run a search to its end, or to the end of its budget.

    Args:
        config: Which search, with its options.
        space: What may be removed.
        k: How many units to remove, or another budget; the most, for a search without a fixed
            count.
        seed: Seed of the search.
        evaluator: Answers masks with losses.
        signals: Answers questions about the dense model.
        limits: What the search may cost. At its end the best mask so far is the result, filled up
            to the budget where no answer was reached.
        on_batch: Called after each batch with its rows of the trace and its best evaluation.

    Raises:
        BudgetError: If a limit ends the search where nothing can be filled up to the budget.
        UsageError: If no mask of the space meets a weight.
        NotFiniteError: If the dense model's loss is not finite.
        RuntimeError: If the search returns a mask that it must not.
    """
    budget = checked(config, space, k)
    return _Drive(config, space, budget, evaluator, limits, on_batch).run(seed, signals)


def checked(config: SearchConfig, space: SearchSpace, k: Wanted) -> Budget:
    """The budget that is meant.

    Raises:
        UsageError: If it is a weight that no mask of the space meets, and must be met.
    """
    budget = budget_of(k)
    if config.fixed_count and not budget.uniform:
        budget.check(space)
    return budget


class _Drive:
    def __init__(
        self,
        config: SearchConfig,
        space: SearchSpace,
        budget: Budget,
        evaluator: MaskEvaluator,
        limits: Limits,
        on_batch: Callable[[Sequence[TraceRow], Evaluation], None] | None,
    ) -> None:
        self.config, self.space, self.budget = config, space, budget
        self.evaluator, self.limits, self.on_batch = evaluator, limits, on_batch
        self.ledger = Ledger(space, budget, fixed=config.fixed_count)
        self.trace: list[float] = []
        self.stopped: str | None = None
        self.begin = time.monotonic()

    def run(self, seed: int, signals: Signals) -> Outcome:
        dense = self.evaluator.evaluate([self.space.dense])[0]
        if not dense.finite:
            raise NotFiniteError(
                "the dense model's own loss is not finite on these data, so no mask can be judged. "
                "Look for NaN or infinite weights, or try --dtype float32."
            )
        self.per_mask, self.ledger.dense = dense.cost.seconds, dense.mean
        problem = Problem(self.space, self.budget, np.random.default_rng(seed), signals)
        result = self._converse(self.config.load()(problem, self.config))
        found = result if isinstance(result, Found) else Found(result)
        self._check(found.mask)
        best = self.evaluator.evaluate([found.mask])[0]
        if found.mask not in self.ledger.seen:
            self._note([best])
        evaluations = len(self.ledger.seen)
        return Outcome(best, dense, evaluations, tuple(self.trace), found.details, self.stopped)

    def _converse(self, run: SearchRun) -> Mask | Found:
        try:
            masks = next(run)
            while True:
                evaluations = self._evaluate(masks)
                if self.stopped is not None:
                    run.throw(OutOfBudget())
                    raise RuntimeError(f"search {self.config.name} went on after its budget")
                masks = run.send(evaluations)
        except StopIteration as stop:
            result: Mask | Found = stop.value
            return result
        except OutOfBudget:
            return self._answer()

    def _answer(self) -> Mask:
        """The best mask so far, or what it and others promise when filled up, if that is better."""
        best, filled = self.ledger.best, self.ledger.completed()
        if filled is not None and (best is None or filled.promise < best.rank_key):
            if self._room() > 0:
                self._note(self.evaluator.evaluate([filled.mask]))
            best = self.ledger.best
        if best is None:
            raise BudgetError(
                f"the budget ended before {self.budget} could be removed, and no mask so far can "
                "be filled up to them. Raise the budget."
            )
        return best.mask

    def _room(self) -> int:
        """Masks that the budget still covers."""
        most = self.limits.evaluations
        return sys.maxsize if most is None else most - len(self.ledger.seen)

    def _evaluate(self, masks: Sequence[Mask]) -> list[Evaluation]:
        """Evaluate what the budget allows of a batch."""
        allowed = self._affordable(masks)
        found: dict[Mask, Evaluation] = {}
        for part in self._slices(allowed):
            found |= {e.mask: e for e in self.evaluator.evaluate(part)}
            seconds = self.limits.seconds
            if seconds is not None and time.monotonic() - self.begin > seconds:
                self.stopped = "minutes"
                break
        if len(allowed) < len(masks):
            self.stopped = self.stopped or "evaluations"
        evaluations = [found[m] for m in masks if m in found]
        if evaluations:
            self._note(evaluations)
        return evaluations

    def _affordable(self, masks: Sequence[Mask]) -> Sequence[Mask]:
        """The first masks of a batch that the budget of evaluations covers.

        One is kept for filling up where the batch holds no answer, or is not covered wholly.
        """
        if self.limits.evaluations is None:
            return masks
        new = [m for m in dict.fromkeys(masks) if m != self.space.dense]
        new = [m for m in new if m not in self.ledger.seen]
        room = self._room()
        answered = any(self.ledger.answers(m) for m in new)
        several = self.config.fixed_count and self.budget.most(self.space) > 1
        if several and not (answered and len(new) <= room):
            room -= answered or self.ledger.best is None
        if len(new) <= room:
            return masks
        allowed = set(new[: max(room, 0)])
        return _like(masks, [m for m in masks if m in allowed or m not in new])

    def _slices(self, masks: Sequence[Mask]) -> Iterator[Sequence[Mask]]:
        """A batch in pieces after which the clock is looked at."""
        if self.limits.seconds is None or not masks:
            yield masks
            return
        size = max(1, int(SLICE * self.limits.seconds / max(self.per_mask, 1e-9)))
        ordered = visiting_order(dict.fromkeys(masks))
        for start in range(0, len(ordered), size):
            yield _like(masks, ordered[start : start + size])

    def _note(self, evaluations: Sequence[Evaluation]) -> None:
        rows = self.ledger.add(len(self.trace), evaluations)
        leader = min(evaluations, key=lambda e: e.rank_key)
        self.trace.append(leader.mean)
        if self.on_batch is not None:
            self.on_batch(rows, leader)

    def _check(self, mask: Mask) -> None:
        if not self.ledger.answers(mask):
            wanted = "" if self.config.fixed_count else "at most "
            raise RuntimeError(
                f"search {self.config.name} returned {mask}, which does not remove "
                f"{wanted}{self.budget} as it must"
            )


def _like(masks: Sequence[Mask], some: Sequence[Mask]) -> Sequence[Mask]:
    """Some masks of a batch, a contest if it was one."""
    return Contest(some, masks.winners) if isinstance(masks, Contest) else some
