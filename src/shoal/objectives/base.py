"""What an objective is: prepared batches and a rule that turns a masked model into losses."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from torch import Tensor
from transformers import PreTrainedModel

from shoal.models.batch import TokenBatch
from shoal.models.dense import DenseModel
from shoal.models.head import Scorer

if TYPE_CHECKING:
    from shoal.objectives.options import BuildOptions


class Batch(Protocol):
    """A micro-batch.

    Attributes:
        examples: For each example in the batch, its index in the calibration set.
    """

    @property
    def examples(self) -> tuple[int, ...]: ...  # noqa: D102


@dataclass(frozen=True)
class ExampleBatch:
    """A micro-batch of tokens to score, and the examples that it holds.

    Attributes:
        tokens: What to run and to score.
        examples: For each example in the batch, its index in the calibration set.
        layout: What the objective needs to turn segment sums into losses.
    """

    tokens: TokenBatch
    examples: tuple[int, ...]
    layout: Any = None


@dataclass(frozen=True)
class Described:
    """What an objective says of its data once they are prepared.

    Attributes:
        content: All tokens and answers, for the fingerprint; a JSON value.
        described: How the data were prepared, for the plan.
    """

    content: Any
    described: dict[str, Any]


class Objective(ABC):
    """Per-example losses of a masked model on calibration data; lower is always better.

    Attributes:
        expression: How a user writes it, e.g. `margin:arc_easy`.
        fingerprint: Fingerprint of the tokenised data and of the objective's options.
        data: What the data are and how they were tokenised, for the plan.
        num_examples: Number of calibration examples.
        weights: One weight per example for the mean, or None for equal weights.
        batches: The data as micro-batches.
        parts: The batches of each part; the parts are random samples of the examples, drawn
            without replacement, of growing size. A single part unless the data are for racing.
    """

    expression: str
    fingerprint: str
    data: dict[str, Any]
    num_examples: int
    weights: Sequence[float] | None = None
    batches: Sequence[Any]
    parts: tuple[tuple[int, ...], ...] = ()

    @abstractmethod
    def prepare(self, data: Any, dense: DenseModel, options: "BuildOptions") -> Described:
        """Tokenise the data and make micro-batches; sets batches, parts, num_examples, weights.

        Args:
            data: Data of a kind that the objective's config says it reads.
            dense: The model.
            options: How.

        Raises:
            UsageError: If the data are too short, or too long for the model.
        """

    @property
    @abstractmethod
    def num_tokens(self) -> int:
        """Positions that run through the blocks for one mask, padding included."""


class ScoringObjective(Objective):
    """An objective on given text: one forward pass per mask, which masks can share.

    Attributes:
        needs_reference: Whether the losses compare with the dense model.
        differentiable: Whether the losses have useful derivatives by the model's activations.
    """

    needs_reference: ClassVar[bool] = False
    differentiable: ClassVar[bool] = True
    batches: Sequence[ExampleBatch]

    @abstractmethod
    def losses(
        self, scorer: Scorer, batch: ExampleBatch, reference: Scorer | None = None
    ) -> Tensor:
        """Losses of the examples of one batch under one masked model.

        Args:
            scorer: Scores tokens under the masked model for the batch's rows.
            batch: The batch.
            reference: The same under the dense model, where `needs_reference` says so.

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


class GenerationObjective(Objective):
    """An objective on what the model writes: the masked model generates with a KV cache."""

    batches: Sequence[Batch]

    @abstractmethod
    def losses(self, model: PreTrainedModel, batch: Any) -> list[float]:
        """Losses of the examples of one batch.

        Args:
            model: The model without the removed blocks; it generates as any other.
            batch: The batch.

        Returns:
            One loss per example of the batch.
        """
