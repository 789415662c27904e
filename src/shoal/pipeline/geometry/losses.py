"""What a language model loses on a task, under whatever interventions are in place.

The model's own forward runs, so that hooks on its blocks take effect; its head then scores only the
positions that the loss needs, where the head can be taken apart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shoal.config.geometry import Metric
from shoal.config.objectives import (
    AccuracyConfig,
    LikelihoodConfig,
    MarginConfig,
    NllConfig,
    ObjectiveConfig,
)
from shoal.core import fingerprint
from shoal.core.mask import Mask
from shoal.data import (
    Choice,
    ChoiceItem,
    ChoiceSet,
    EncodedText,
    PromptItem,
    PromptSet,
    Tokenisation,
    encode_choices,
)
from shoal.engine.runners import WholeRunner
from shoal.geometry.stack import Stack
from shoal.models.batch import TokenBatch
from shoal.models.dense import DenseModel
from shoal.models.discover import max_positions
from shoal.models.head import Scorer
from shoal.models.hidden import hidden_of
from shoal.models.tail import find_head
from shoal.objectives.base import ScoringObjective
from shoal.objectives.build import Data, build_objective
from shoal.objectives.nll import NegativeLogLikelihood
from shoal.objectives.options import BuildOptions
from shoal.objectives.prompting import prompts_of

METRICS: Mapping[str, tuple[Metric, ...]] = MappingProxyType(
    {"choice": ("margin", "likelihood", "accuracy"), "text": ("nll",), "prompt": ("nll",)}
)
"""Kind of data -> the losses that it has, the default first."""

CONFIGS: Mapping[Metric, ObjectiveConfig] = MappingProxyType(
    {
        "margin": MarginConfig(),
        "likelihood": LikelihoodConfig(),
        "accuracy": AccuracyConfig(),
        "nll": NllConfig(),
    }
)

MEANINGS = {
    "margin": "margin: log-likelihood per token of the wrong choices minus the right one's, nats",
    "likelihood": "negative log-likelihood per token of the right choice, nats",
    "accuracy": "share of items whose likeliest choice is wrong",
    "text": "negative log-likelihood per token of the text, nats",
    "answer": "negative log-likelihood per token of the reference answer after the prompt, nats",
    "prompt": "negative log-likelihood per token of the prompt, which has no answer, nats",
}


def metric_for(kind: str, wanted: Sequence[Metric]) -> Metric:
    """The loss of a kind of data: the first wanted one that it has, else its default."""
    return next((m for m in wanted if m in METRICS[kind]), METRICS[kind][0])


class ModelLosses:
    """Losses of the model as it is when called.

    Args:
        dense: The model; nothing may be in place when this is made.
        stack: How it runs.
        objective: A prepared objective.
        key: What tells its data and options from others'.
        metric: What the loss is, in a few words.
    """

    def __init__(
        self, dense: DenseModel, stack: Stack, objective: ScoringObjective, key: str, metric: str
    ) -> None:
        self.dense, self.stack, self.objective = dense, stack, objective
        self.fingerprint, self.metric = key, metric
        smallest = min(objective.batches, key=lambda b: b.tokens.num_tokens)
        self._head = find_head(dense, smallest.tokens.to(dense.device))
        self._whole = WholeRunner(dense, plain=False)

    @property
    def num_examples(self) -> int:
        """Examples that there are losses of."""
        return self.objective.num_examples

    @property
    def num_tokens(self) -> int:
        """Positions that run in one pass."""
        return self.objective.num_tokens

    def __call__(self) -> NDArray[np.float64]:
        """The loss of each example [E]; NaN where logits are not numbers."""
        found = np.empty(self.num_examples)
        for batch in self.objective.batches:
            local = replace(batch, tokens=batch.tokens.to(self.dense.device))
            with torch.inference_mode():
                losses = self.objective.losses(self._scorer(local.tokens), local)
            found[list(batch.examples)] = losses.cpu().numpy()
        return found

    def _scorer(self, tokens: TokenBatch) -> Scorer:
        if self._head is None:
            dense = Mask.dense(self.dense.depth)
            ((_, scorer),) = self._whole.run(None, tokens, [dense])
            return scorer
        last: list[Tensor] = []

        def keep(module: Any, args: Any, output: Any) -> None:
            last[:] = [hidden_of(output)]

        # Registered now, so it sees what interventions on the last block have made.
        hook = self.dense.blocks.layers[-1].register_forward_hook(keep)
        try:
            self.stack.run(tokens)
        finally:
            hook.remove()
        return self._head.score(last[0], tokens.rows)


def losses_on(
    data: Data,
    dense: DenseModel,
    stack: Stack,
    metric: Metric,
    *,
    limit: int,
    length: int,
    tokenisation: Tokenisation,
    batch_tokens: int,
) -> ModelLosses:
    """Prepare the losses of a task.

    Args:
        data: The task.
        dense: The model.
        stack: How it runs.
        metric: One that `METRICS` has for this kind of data.
        limit: Examples.
        length: Tokens of a block of text.
        tokenisation: The policy for special tokens.
        batch_tokens: Positions per micro-batch.

    Raises:
        UsageError: If the data are too short, or too long for the model.
    """
    if isinstance(data, PromptSet):
        items = data.items[:limit]
        texts, meaning = _scored(items, dense, tokenisation)
        nll = NegativeLogLikelihood()
        nll.take(texts, BuildOptions(tokenisation, batch_tokens=batch_tokens))
        key = fingerprint.of_json(["nll", [[list(t.tokens), t.scored] for t in texts]])
        return ModelLosses(dense, stack, nll, key, MEANINGS[meaning])
    if isinstance(data, ChoiceSet):
        data = ChoiceSet.of(data.name, data.split, data.items[:limit], data.origin)
    objective = build_objective(
        CONFIGS[metric],
        data,
        dense,
        tokenisation=tokenisation,
        batch_tokens=batch_tokens,
        length=length,
        limit=limit,
    )
    if not isinstance(objective, ScoringObjective):
        raise TypeError(f"{metric} scores no given text")
    meaning = MEANINGS.get(metric, MEANINGS["text"])
    return ModelLosses(dense, stack, objective, objective.fingerprint, meaning)


def _scored(
    items: Sequence[PromptItem], dense: DenseModel, tokenisation: Tokenisation
) -> tuple[tuple[EncodedText, ...], str]:
    """Prompts with the first reference answer of each scored, or themselves where one has none."""
    if not all(item.answers for item in items):
        some = PromptSet.of("", "", items, "")
        prompts = prompts_of(
            some,
            dense,
            tokenisation,
            limit=None,
            length=1,
            new_tokens=1,
            chat=False,
            skip_long=True,
        )
        return tuple(EncodedText(t, len(t) - 1) for t in prompts if len(t) > 1), "prompt"
    # Answers are encoded as choices are; an item of choices needs two, so each stands there twice.
    pairs = [(Choice(i.prompt, _after(i.prompt, i.answers[0])),) * 2 for i in items]
    doubled = [ChoiceItem(i.id, pair, 0) for i, pair in zip(items, pairs, strict=True)]
    encoded = encode_choices(
        ChoiceSet.of("", "", doubled, ""),
        dense.require_tokenizer(),
        tokenisation,
        max_length=max_positions(dense.config),
    )
    choices = (item.choices[0] for item in encoded)
    return tuple(EncodedText(c.tokens, c.scored) for c in choices), "answer"


def _after(prompt: str, answer: str) -> str:
    """An answer as it follows its prompt: after a space, unless there is one."""
    return answer if prompt[-1:].isspace() or answer[:1].isspace() else f" {answer}"
