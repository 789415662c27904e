"""What a search has seen so far: the trace, the best, and a full answer where it stops early."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from shoal.core.budget import Budget
from shoal.core.evaluation import Cost, Evaluation
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.core.units import Unit
from shoal.searches.ranking import price_key

UNKNOWN = 1e6
"""What an unknown removal is taken to cost: more than any known one, and still comparable."""


@dataclass(frozen=True)
class TraceRow:
    """One evaluation in the order in which a search asked for it.

    Attributes:
        batch: Number of the batch.
        mask: The mask, as text.
        loss: Mean loss; of the part that was evaluated where it is not complete.
        stderr: Its standard error.
        complete: Whether every example was evaluated.
        best: Least complete loss so far among masks that may be the answer, if any.
        evaluations: Distinct masks so far.
        blocks: Block passes so far, whenever they were paid.
        seconds: Wall time so far, whenever it was spent.
    """

    batch: int
    mask: str
    loss: float
    stderr: float
    complete: bool
    best: float | None
    evaluations: int
    blocks: float
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The row as JSON values; a loss that is no number is null."""
        return {
            k: None if isinstance(v, float) and v - v != 0 else v for k, v in asdict(self).items()
        }


@dataclass(frozen=True)
class Completed:
    """A mask that was filled up.

    Attributes:
        mask: The mask.
        promise: What its loss would be if removals did not interact further.
    """

    mask: Mask
    promise: float


@dataclass
class Ledger:
    """All evaluations of one search.

    Attributes:
        space: What may be removed.
        budget: How much is to be removed.
        dense: The dense model's loss.
        fixed: Whether the budget must be met, rather than kept within.
        rows: The trace.
        seen: The masks asked for, the dense one left out.
        best: The best complete evaluation of a mask that may be the answer.
        cost: What everything took.
    """

    space: SearchSpace
    budget: Budget
    dense: float = 0.0
    fixed: bool = True
    rows: list[TraceRow] = field(default_factory=list)
    seen: dict[Mask, Evaluation] = field(default_factory=dict)
    best: Evaluation | None = None
    cost: Cost = field(default_factory=Cost)

    def add(self, batch: int, evaluations: Sequence[Evaluation]) -> list[TraceRow]:
        """Note a batch; returns the new rows of the trace."""
        new = []
        for evaluation in evaluations:
            mask = evaluation.mask
            if mask == self.space.dense or mask in self.seen:
                continue
            self.seen[mask] = evaluation
            self.cost += evaluation.cost
            if evaluation.complete and self.answers(mask):
                better = self.best is None or evaluation.rank_key < self.best.rank_key
                self.best = evaluation if better else self.best
            new.append(
                TraceRow(
                    batch,
                    str(mask),
                    evaluation.mean,
                    evaluation.stderr,
                    evaluation.complete,
                    None if self.best is None else self.best.mean,
                    len(self.seen),
                    self.cost.blocks,
                    self.cost.seconds,
                )
            )
        self.rows += new
        return new

    def completed(self) -> "Completed | None":
        """A new answer from what is known; None where nothing can be filled up to one.

        Each mask that was seen is filled up with the units that cost least alone, under a weight
        per price, without those in vain; the one whose loss and these costs add up to the least is
        the answer.
        """
        space = self.space
        known = {m: e.rank_key for m, e in self.seen.items() if e.complete and space.is_valid(m)}
        found: list[Completed] = []
        for start, loss in {space.dense: self.dense, **known}.items():
            filled = self._filled(start)
            if filled is not None and filled not in self.seen:
                cost = self._cost(start, filled) - self._cost(filled, start)
                found.append(Completed(filled, loss + cost))
        return min(found, key=lambda c: c.promise, default=None)

    def _filled(self, mask: Mask) -> Mask | None:
        space, budget = self.space, self.budget
        while not budget.is_met(space, mask):
            ways = [m for m in space.extensions(mask) if budget.reachable(space, m)]
            if not ways:
                return None
            before, start = budget.missing(space, mask), mask

            def key(grown: Mask, before: float = before, start: Mask = start) -> tuple[float, ...]:
                cost = self._cost(start, grown)
                if budget.uniform:
                    return (cost,)
                return price_key(cost, 0.0, before - max(budget.missing(space, grown), 0.0))

            mask = min(ways, key=key)
        dearest_first = sorted(space.removed_units(mask), key=self._alone, reverse=True)
        mask = budget.trimmed(space, mask, dearest_first)
        return mask if self.answers(mask) else None

    def answers(self, mask: Mask) -> bool:
        """Whether a mask may be the result."""
        if self.fixed:
            return self.budget.is_answer(self.space, mask)
        return self.budget.within(self.space, mask) and self.space.is_valid(mask)

    def _cost(self, start: Mask, grown: Mask) -> float:
        """What further removals add to the loss, if they do not interact."""
        before = self.space.removed_units(start)
        new = [unit for unit in self.space.removed_units(grown) if unit not in before]
        return sum(map(self._alone, new))

    def _alone(self, unit: Unit) -> float:
        """What removing a single unit adds to the dense loss; a lot where that is not known."""
        alone = self.seen.get(self.space.dense.without(unit))
        return UNKNOWN if alone is None or not alone.finite else alone.mean - self.dense
