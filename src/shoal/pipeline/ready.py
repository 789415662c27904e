"""From a checked request to an evaluator: objectives prepared, ways to run chosen, cost known."""

from collections.abc import MutableMapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shoal.config.mixture import MixtureConfig
from shoal.core.budget import CountBudget
from shoal.core.mask import Mask
from shoal.engine.driver import MaskEvaluator
from shoal.engine.estimate import Estimate, cache_share, estimate
from shoal.engine.evaluator import Evaluator, Step
from shoal.engine.generated import GeneratedLosses, estimate_generation
from shoal.engine.losses import LossSource, ScoredLosses
from shoal.engine.mixture import MixedTerm, MixtureEvaluator, MixtureSignals
from shoal.engine.racing import Racer
from shoal.engine.selfcheck import choose_runner
from shoal.engine.signals import ModelSignals
from shoal.engine.store import Store
from shoal.models.dense import DenseModel
from shoal.objectives.base import GenerationObjective, Objective, ScoringObjective
from shoal.objectives.build import build_objective
from shoal.pipeline.listener import Listener
from shoal.pipeline.prepare import Prepared, tokenisation
from shoal.searches.base import Signals

SPAN_MASKS = 8
"""Random masks behind the span of a mixture's terms."""


@dataclass(frozen=True)
class ReadyTerm:
    """One term of the objective, ready to be evaluated.

    Attributes:
        weight: Its weight.
        objective: The objective, prepared.
        source: Where its losses come from.
        runner: How masks are run: replay, whole, or generate.
        estimate: What the search's evaluations will take under it.
    """

    weight: float
    objective: Objective
    source: LossSource
    runner: str
    estimate: Estimate


@dataclass(frozen=True)
class Ready:
    """A search that is ready to start.

    Attributes:
        terms: The terms of the objective.
        estimate: What it will take.
    """

    terms: tuple[ReadyTerm, ...]
    estimate: Estimate

    @property
    def num_batches(self) -> int:
        """Micro-batches of all terms."""
        return sum(len(t.objective.batches) for t in self.terms)

    @property
    def num_examples(self) -> int:
        """Calibration examples of all terms."""
        return sum(t.objective.num_examples for t in self.terms)

    @property
    def num_tokens(self) -> int:
        """Positions of all terms that run through the blocks for one mask."""
        return sum(t.objective.num_tokens for t in self.terms)


def make_ready(
    request: Prepared,
    listener: Listener,
    dense: DenseModel,
    artifacts: MutableMapping[str, bytes],
) -> Ready:
    """Tokenise the data, choose how masks are run, and estimate the cost."""
    config = request.config
    listener.stage(f"Preparing {config.expression}")
    racing = config.racing and request.forecast.contests > 0
    if config.racing and not racing:
        listener.note(f"{config.search.name} needs every loss in full: there is nothing to race")
    terms = []
    for term, data in zip(config.terms, request.calibration, strict=True):
        objective = build_objective(
            term.objective,
            data,
            dense,
            tokenisation=tokenisation(config),
            batch_tokens=config.batch_tokens,
            length=config.length,
            limit=term.limit,
            racing=racing,
            seed=config.seed,
            artifacts=artifacts,
        )
        if isinstance(objective, GenerationObjective):
            terms.append(_generated(request, dense, objective, term.weight))
        elif isinstance(objective, ScoringObjective):
            terms.append(_scored(request, listener, dense, objective, term.weight))
    total = Estimate(
        sum(t.estimate.seconds for t in terms),
        max(t.estimate.bytes for t in terms) + sum(t.estimate.cache_bytes for t in terms[1:]),
        sum(t.estimate.cache_bytes for t in terms),
    )
    return Ready(tuple(terms), total)


def _scored(
    request: Prepared,
    listener: Listener,
    dense: DenseModel,
    objective: ScoringObjective,
    weight: float,
) -> ReadyTerm:
    memory = request.config.cache_memory
    share = cache_share(dense, objective, memory) // len(request.calibration)
    widest = max(objective.batches, key=lambda b: b.tokens.input_ids.shape[1])
    rng = np.random.default_rng(request.config.seed)
    checked = [request.budget.sample(request.space, rng)]
    choice = choose_runner(dense, widest.tokens.to(dense.device), cache_bytes=share, masks=checked)
    listener.note(choice.reason)
    expected = estimate(dense, objective, choice.runner, request.forecast, share)
    source = ScoredLosses(dense, objective, choice.runner)
    return ReadyTerm(weight, objective, source, choice.runner.name, expected)


def _generated(
    request: Prepared,
    dense: DenseModel,
    objective: GenerationObjective,
    weight: float,
) -> ReadyTerm:
    expected = estimate_generation(dense, objective, request.forecast)
    return ReadyTerm(weight, objective, GeneratedLosses(dense, objective), "generate", expected)


@dataclass(frozen=True)
class Open:
    """Everything a search talks to, with its stores open.

    Attributes:
        evaluator: Answers masks with losses.
        evaluators: Those of the terms.
        signals: Answers questions about the dense model.
        known: Evaluations known from before.
    """

    evaluator: MaskEvaluator
    evaluators: tuple[Evaluator, ...]
    signals: Signals
    known: int


def open_evaluator(
    stack: ExitStack,
    request: Prepared,
    ready: Ready,
    dense: DenseModel,
    path: Path,
    artifacts: MutableMapping[str, bytes],
    on_step: Step,
) -> Open:
    """Open the stores of all terms in one file and put the evaluator together.

    Args:
        stack: Closes the stores.
        request: The request.
        ready: Its objectives.
        dense: The model.
        path: The file of evaluations.
        artifacts: Where signals are kept.
        on_step: Called after each mask of each micro-batch.
    """
    config = request.config
    evaluators, signals = [], []
    for term in ready.terms:
        store = stack.enter_context(
            Store(path, context_of(dense, term.objective), term.objective.weights)
        )
        evaluators.append(Evaluator(term.objective, term.source, store, on_step))
        signals.append(ModelSignals(dense, term.objective, request.space, artifacts))
    known = min(len(e.store) for e in evaluators)
    if isinstance(config.objective, MixtureConfig):
        weights = [t.weight for t in ready.terms]
        mixed = [MixedTerm(w, e) for w, e in zip(weights, evaluators, strict=True)]
        random = random_masks(request) if config.objective.normalise == "span" else []
        mixture = MixtureEvaluator(mixed, random)
        return Open(mixture, tuple(evaluators), MixtureSignals(weights, signals), known)
    evaluator: MaskEvaluator = evaluators[0]
    if config.racing:
        evaluator = Racer(
            evaluators[0], error_rate=config.racing_error, contests=request.forecast.contests
        )
    return Open(evaluator, tuple(evaluators), signals[0], known)


def random_masks(request: Prepared) -> list[Mask]:
    """The masks that say what removing blindly costs, for the span of a mixture's terms."""
    space, budget = request.space, request.budget
    if isinstance(budget, CountBudget) and not request.config.search.fixed_count:
        budget = CountBudget(min(budget.k, max(1, space.depth // 4)))
    rng = np.random.default_rng([request.config.seed, SPAN_MASKS])
    return list(dict.fromkeys(budget.sample(space, rng) for _ in range(SPAN_MASKS)))


def context_of(dense: DenseModel, objective: Objective) -> dict[str, Any]:
    """What losses depend on besides the mask."""
    return {
        "model": dense.fingerprint,
        "dtype": dense.dtype_name,
        "objective": objective.expression,
        "data": objective.fingerprint,
    }
