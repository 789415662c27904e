"""Objectives on multiple-choice items: margin, likelihood, accuracy.

With l the log-likelihood of a choice (per token, byte or character, or summed), c the right one
and w the wrong ones:

    margin      mean_{w != c} l_w - l_c        the recommended form of methods.md A.2
    likelihood  -l_c
    accuracy    1 if some other choice has a larger l, else 0

The margin's mean over wrong choices may be replaced by their sum (PuDDing, Wee et al. 2025,
2502.04348) or by their maximum (the hardest alternative alone).
"""

from typing import Literal

import torch
from torch import Tensor

from shoal.data.encode import encode_choices
from shoal.data.items import ChoiceSet
from shoal.models.dense import DenseModel
from shoal.models.discover import max_positions
from shoal.models.head import Scorer
from shoal.objectives.base import Described, ExampleBatch, ScoringObjective
from shoal.objectives.choice_batches import choice_batches
from shoal.objectives.options import BuildOptions, in_parts
from shoal.objectives.packing import packing_agrees

Normalise = Literal["token", "sum", "byte", "char"]
Pair = Literal["mean", "sum", "max"]


class ChoiceObjective(ScoringObjective):
    """An objective that compares the choices of an item.

    Attributes:
        normalise: Divide a choice's log-likelihood by its tokens, bytes, characters, or not at all.
    """

    normalise: Normalise = "token"

    def prepare(self, data: ChoiceSet, dense: DenseModel, options: BuildOptions) -> Described:
        """Tokenise the items; their choices share a row where the model allows it."""
        items = encode_choices(
            data,
            dense.require_tokenizer(),
            options.tokenisation,
            max_length=max_positions(dense.config),
        )
        packed = options.pack_choices
        if packed is None:
            packed = packing_agrees(dense, items, options.batch_tokens)
        self.batches, self.parts = in_parts(
            len(items),
            options,
            lambda some: choice_batches(
                [items[i] for i in some], options.batch_tokens, packed=packed
            ),
        )
        self.num_examples = len(items)
        content = [
            [[[c.tokens, c.scored, c.num_bytes, c.num_chars] for c in i.choices], i.gold]
            for i in items
        ]
        return Described(content, {"items": len(items), "packed_choices": packed})

    def choice_scores(self, scorer: Scorer, batch: ExampleBatch) -> Tensor:
        """Log-likelihood of every choice [items, choices], minus infinity where there is none."""
        tokens, layout = batch.tokens, batch.layout
        sums = tokens.segment_sums(scorer.token_logprobs(tokens.pick, tokens.targets))
        segment = layout.segment.to(sums.device)
        scores = sums[segment]
        if self.normalise == "token":
            scores = scores / tokens.segment_lengths()[segment]
        elif self.normalise == "byte":
            scores = scores / layout.num_bytes.to(sums.device)
        elif self.normalise == "char":
            scores = scores / layout.num_chars.to(sums.device)
        return scores.masked_fill(~layout.present.to(sums.device), -torch.inf)


def _split(scores: Tensor, batch: ExampleBatch) -> tuple[Tensor, Tensor]:
    """Score of the right choice [items], and of the others with the right one at -inf."""
    gold = batch.layout.gold.to(scores.device)[:, None]
    return scores.gather(1, gold)[:, 0], scores.scatter(1, gold, -torch.inf)


class Margin(ChoiceObjective):
    """How much likelier the wrong choices are than the right one.

    Attributes:
        pair: How the wrong choices are joined.
    """

    pair: Pair = "mean"

    def losses(
        self, scorer: Scorer, batch: ExampleBatch, reference: Scorer | None = None
    ) -> Tensor:
        """Margin loss of each item in the batch."""
        right, wrong = _split(self.choice_scores(scorer, batch), batch)
        if self.pair == "max":
            return wrong.amax(1) - right
        differs = torch.isfinite(wrong) | torch.isnan(wrong)
        gaps = torch.where(differs, wrong - right[:, None], 0.0).sum(1)
        return gaps / differs.sum(1) if self.pair == "mean" else gaps


class Likelihood(ChoiceObjective):
    """Negative log-likelihood of the right choice."""

    def losses(
        self, scorer: Scorer, batch: ExampleBatch, reference: Scorer | None = None
    ) -> Tensor:
        """Negative log-likelihood of the right choice of each item in the batch."""
        return -_split(self.choice_scores(scorer, batch), batch)[0]


class Accuracy(ChoiceObjective):
    """Error: 1 where the likeliest choice is not the right one; accuracy is one minus the mean.

    Ties go to the choice that comes first, as argmax does.
    """

    normalise: Normalise = "sum"
    differentiable = False

    def losses(
        self, scorer: Scorer, batch: ExampleBatch, reference: Scorer | None = None
    ) -> Tensor:
        """Error of each item in the batch; NaN where a score is NaN."""
        scores = self.choice_scores(scorer, batch)
        gold = batch.layout.gold.to(scores.device)
        error = (scores.argmax(1) != gold).double()
        return error.masked_fill(torch.isnan(scores).any(1), torch.nan)
