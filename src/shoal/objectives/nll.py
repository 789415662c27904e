"""Mean negative log-likelihood per token; its exponential is the perplexity."""

from torch import Tensor

from shoal.models.head import Scorer
from shoal.objectives.base import ExampleBatch
from shoal.objectives.text import TextObjective


class NegativeLogLikelihood(TextObjective):
    """Mean NLL in nats over the scored tokens of each text, weighted by their number."""

    def losses(
        self, scorer: Scorer, batch: ExampleBatch, reference: Scorer | None = None
    ) -> Tensor:
        """Mean NLL per scored token of each text in the batch."""
        tokens = batch.tokens
        scores = scorer.token_logprobs(tokens.pick, tokens.targets)
        return -tokens.segment_sums(scores) / tokens.segment_lengths()
