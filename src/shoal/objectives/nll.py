"""Mean negative log-likelihood per token; its exponential is the perplexity."""

from torch import Tensor

from shoal.models.head import Scorer
from shoal.objectives.base import ExampleBatch, Objective


class NegativeLogLikelihood(Objective):
    """Mean NLL in nats over the scored tokens of each text, weighted by their number."""

    def losses(self, scorer: Scorer, batch: ExampleBatch) -> Tensor:
        """Mean NLL per scored token of each text in the batch."""
        tokens = batch.tokens
        scores = scorer.token_logprobs(tokens.pick, tokens.targets)
        return -tokens.segment_sums(scores) / tokens.segment_lengths()
