"""Divergence from the dense model: how differently a pruned model predicts the next token.

    loss of a text = mean over its scored tokens of KL(dense || pruned) = sum_v p_v log(p_v / q_v)

with p and q the dense and the pruned model's next-token distributions before that token, in nats.
Unlike the likelihood of the text, it also sees what the text does not say: every other token that
the dense model holds possible. It needs no labels and is zero for the dense model.
"""

from typing import ClassVar

from torch import Tensor

from shoal.models.head import Scorer
from shoal.objectives.base import ExampleBatch
from shoal.objectives.text import TextObjective


class Divergence(TextObjective):
    """Mean KL in nats over the scored tokens of each text, weighted by their number."""

    needs_reference: ClassVar[bool] = True

    def losses(
        self, scorer: Scorer, batch: ExampleBatch, reference: Scorer | None = None
    ) -> Tensor:
        """Mean KL(dense || pruned) per scored token of each text in the batch.

        Raises:
            ValueError: If there is no reference.
        """
        if reference is None:
            raise ValueError("a divergence needs the dense model's scorer as its reference")
        tokens = batch.tokens
        scores = scorer.divergence(reference)[tokens.pick]
        return tokens.segment_sums(scores) / tokens.segment_lengths()
