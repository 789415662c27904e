"""Perplexity and multiple-choice accuracy of a dense model and of any masks of it.

Dense and pruned models go through the same evaluator on the same tokens, so their numbers differ by
what was removed and by nothing else.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch

from shoal.config.objectives import (
    AccuracyConfig,
    ExactMatchConfig,
    MarginConfig,
    NllConfig,
    ObjectiveConfig,
)
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask
from shoal.data import ChoiceSet, Corpus, PromptSet, Tokenisation
from shoal.engine.evaluator import Evaluator
from shoal.engine.generated import GeneratedLosses
from shoal.engine.selfcheck import choose_runner
from shoal.engine.store import Store
from shoal.evaluation.results import Metric, MetricName
from shoal.models.dense import DenseModel
from shoal.models.head import Scorer
from shoal.objectives.base import GenerationObjective, ScoringObjective
from shoal.objectives.build import Data, build_objective

DEFAULT_TEXTS = 64
"""Blocks of report text where no limit is given."""

TEXT_METRICS: dict[MetricName, ObjectiveConfig] = {"perplexity": NllConfig()}

CHOICE_METRICS: dict[MetricName, ObjectiveConfig] = {
    "accuracy": AccuracyConfig(),
    "accuracy_norm": AccuracyConfig(normalise="char"),
    "margin": MarginConfig(),
}


@dataclass(frozen=True)
class TaskSettings:
    """How tasks are tokenised and run.

    Attributes:
        tokenisation: The policy for special tokens.
        batch_tokens: Positions per micro-batch.
        length: Tokens per block of text.
        num_texts: Blocks of text per task.
        generation: How answers are generated; None generates only where there is no other way.
    """

    tokenisation: Tokenisation
    batch_tokens: int = 2048
    length: int = 512
    num_texts: int | None = None
    generation: ExactMatchConfig | None = None


def measure(
    dense: DenseModel,
    masks: Sequence[Mask],
    data: Data,
    settings: TaskSettings,
    on_step: Callable[[int, int], None] | None = None,
) -> list[list[Metric]]:
    """Measure masks on one task.

    Args:
        dense: The model.
        masks: Distinct masks; one result for each.
        data: Report data.
        settings: How they are tokenised and run.
        on_step: Called with mask passes done and planned.

    Returns:
        For each mask its metrics: perplexity of text; accuracy, accuracy per character and
        margin loss of multiple choice; exact match of generated answers.
    """
    found: list[list[Metric]] = [[] for _ in masks]
    if not isinstance(data, PromptSet):
        found = _scored(dense, masks, data, settings, on_step)
    if isinstance(data, PromptSet) or (settings.generation and isinstance(data, ChoiceSet)):
        metrics = exact_match(dense, masks, data, settings, on_step)
        found = [[*known, metric] for known, metric in zip(found, metrics, strict=True)]
    return found


def exact_match(
    dense: DenseModel,
    masks: Sequence[Mask],
    data: PromptSet | ChoiceSet,
    settings: TaskSettings,
    on_step: Callable[[int, int], None] | None = None,
) -> list[Metric]:
    """Share of generated answers that are right, for each mask; arguments as for `measure`."""
    built = build_objective(
        settings.generation or ExactMatchConfig(),
        data,
        dense,
        tokenisation=settings.tokenisation,
        batch_tokens=settings.batch_tokens,
    )
    objective = cast(GenerationObjective, built)
    with Store(None, {}) as store:
        evaluator = Evaluator(objective, GeneratedLosses(dense, objective), store, on_step)
        found = evaluator.evaluate(masks)
    return [_metric("exact_match", data, e.losses, objective.weights) for e in found]


def _scored(
    dense: DenseModel,
    masks: Sequence[Mask],
    data: Corpus | ChoiceSet,
    settings: TaskSettings,
    on_step: Callable[[int, int], None] | None,
) -> list[list[Metric]]:
    objectives = _objectives(dense, data, settings)
    batches = next(iter(objectives.values())).batches
    widest = max(batches, key=lambda b: b.tokens.input_ids.shape[1])
    runner = choose_runner(dense, widest.tokens.to(dense.device)).runner
    losses = {
        (mask, name): [math.nan] * objective.num_examples
        for mask in masks
        for name, objective in objectives.items()
    }
    done = 0
    with torch.inference_mode():
        for index, batch in enumerate(batches):
            local = replace(batch, tokens=batch.tokens.to(dense.device))
            for mask, scorer in runner.run(index, local.tokens, masks):
                once = _Once(scorer)
                for name, objective in objectives.items():
                    values = objective.losses(once, local).tolist()
                    for example, value in zip(batch.examples, values, strict=True):
                        losses[mask, name][example] = value
                done += 1
                if on_step is not None:
                    on_step(done, len(masks) * len(batches))
    return [
        [_metric(name, data, losses[m, name], o.weights) for name, o in objectives.items()]
        for m in masks
    ]


def _objectives(
    dense: DenseModel, data: Corpus | ChoiceSet, settings: TaskSettings
) -> dict[MetricName, ScoringObjective]:
    """The objectives behind the metrics of a task; all have the same batches."""
    wanted = TEXT_METRICS if isinstance(data, Corpus) else CHOICE_METRICS
    first: ScoringObjective | None = None
    found: dict[MetricName, ScoringObjective] = {}
    for name, config in wanted.items():
        if first is None:
            built = build_objective(
                config,
                data,
                dense,
                tokenisation=settings.tokenisation,
                batch_tokens=settings.batch_tokens,
                length=settings.length,
                limit=settings.num_texts or DEFAULT_TEXTS,
            )
            objective = first = cast(ScoringObjective, built)
        else:
            objective = config.load()()
            for option, value in config.model_dump(exclude={"name"}).items():
                setattr(objective, option, value)
            objective.batches, objective.num_examples = first.batches, first.num_examples
        found[name] = objective
    return found


class _Once:
    """A scorer that computes its log-probabilities once, for several objectives on one batch."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self._known: torch.Tensor | None = None

    def token_logprobs(self, pick: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if self._known is None:
            self._known = self._scorer.token_logprobs(pick, targets)
        return self._known

    def divergence(self, reference: Scorer) -> torch.Tensor:
        return self._scorer.divergence(reference)

    @property
    def keepable(self) -> bool:
        return self._scorer.keepable


def _metric(
    name: MetricName,
    data: Data,
    losses: Sequence[float],
    weights: Sequence[float] | None,
) -> Metric:
    share = name.startswith("accuracy") or name == "exact_match"
    values = [1.0 - x for x in losses] if share else list(losses)
    summary = Evaluation.of(Mask.dense(1), values, weights)
    value, stderr = summary.mean, summary.stderr
    if name == "perplexity":
        # exp overflows long before a model is that bad; the delta method carries the error over.
        value = math.exp(value) if value < 700 else math.inf
        stderr = value * stderr
    return Metric(
        task=data.name,
        name=name,
        value=value,
        stderr=stderr if math.isfinite(stderr) else None,
        examples=len(values),
        split=data.split,
        origin=data.origin,
        per_example=tuple(values),
        weights=None if weights is None else tuple(weights),
    )
