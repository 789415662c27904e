"""What a search has seen so far: the trace, the best, and a full answer where it stops early."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from shoal.core.errors import BudgetError
from shoal.core.evaluation import Cost, Evaluation
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace


@dataclass(frozen=True)
class TraceRow:
    """One evaluation in the order in which a search asked for it.

    Attributes:
        batch: Number of the batch.
        mask: The mask, as text.
        loss: Mean loss; of the part that was evaluated where it is not complete.
        stderr: Its standard error.
        complete: Whether every example was evaluated.
        best: Least complete loss so far among masks with the wanted number of units, if any.
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


@dataclass
class Ledger:
    """All evaluations of one search.

    Attributes:
        space: What may be removed.
        k: How many units are wanted.
        rows: The trace.
        seen: The masks asked for, the dense one left out.
        best: The best complete evaluation of a mask of k units.
        cost: What everything took.
    """

    space: SearchSpace
    k: int
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
            if evaluation.complete and self._answers(mask):
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

    def completed(self) -> Mask:
        """A mask of k units from what is known: the best of the largest, then the cheapest alone.

        Raises:
            BudgetError: If the architecture's constraints leave no way to k units.
        """
        space = self.space
        sizes: dict[Mask, int] = {
            m: len(space.removed_units(m))
            for m, e in self.seen.items()
            if e.complete and space.is_valid(m)
        }
        below = [m for m, size in sizes.items() if size <= self.k]
        mask = max(below, key=lambda m: (sizes[m], -self.seen[m].rank_key), default=space.dense)
        while len(space.removed_units(mask)) < self.k:
            ways = space.extensions(mask)
            if not ways:
                raise BudgetError(
                    f"the budget ended with {len(space.removed_units(mask))} of {self.k} units "
                    "removed, and nothing can be added to them. Raise the budget."
                )
            mask = min(ways, key=lambda m: self._alone(m, mask))
        return mask

    def _answers(self, mask: Mask) -> bool:
        return len(self.space.removed_units(mask)) == self.k and self.space.is_valid(mask)

    def _alone(self, grown: Mask, mask: Mask) -> float:
        alone = self.seen.get(self.space.dense.without(grown.removed - mask.removed))
        return float("inf") if alone is None else alone.rank_key
