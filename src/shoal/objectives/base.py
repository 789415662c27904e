"""What an objective is: prepared batches and a rule that turns scores into per-example losses."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from shoal.models.batch import TokenBatch
from shoal.models.head import Scorer


@dataclass(frozen=True)
class ExampleBatch:
    """A micro-batch and the examples that it holds.

    Attributes:
        tokens: What to run and to score.
        examples: For each example in the batch, its index in the calibration set.
        layout: What the objective needs to turn segment sums into losses.
    """

    tokens: TokenBatch
    examples: tuple[int, ...]
    layout: Any = None


class Objective(ABC):
    """Per-example losses of a masked model on calibration data; lower is always better.

    Attributes:
        expression: How a user writes it, e.g. `margin:arc_easy`.
        fingerprint: Fingerprint of the tokenised data and of the objective's options.
        data: What the data are and how they were tokenised, for the plan.
        num_examples: Number of calibration examples.
        weights: One weight per example for the mean, or None for equal weights.
        batches: The data as micro-batches.
    """

    expression: str
    fingerprint: str
    data: dict[str, Any]
    num_examples: int
    weights: Sequence[float] | None = None
    batches: Sequence[ExampleBatch]

    @abstractmethod
    def losses(self, scorer: Scorer, batch: ExampleBatch) -> Tensor:
        """Losses of the examples of one batch under one masked model.

        Args:
            scorer: Gives log-probabilities under the masked model for the batch's rows.
            batch: The batch.

        Returns:
            One loss per example of the batch, float64.
        """

    @property
    def num_tokens(self) -> int:
        """Positions that run through the blocks for one mask, padding included."""
        return sum(b.tokens.num_tokens for b in self.batches)

    @property
    def num_rows(self) -> int:
        """Positions whose logits are computed for one mask."""
        return sum(len(b.tokens.rows) for b in self.batches)
