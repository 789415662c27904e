"""The search stage: from a checked request to a plan."""

import time
from dataclasses import dataclass
from pathlib import Path

from shoal.core.mask import Mask
from shoal.core.plan import Plan, Score
from shoal.engine.driver import Outcome, drive
from shoal.engine.estimate import Estimate, cache_share, estimate
from shoal.engine.evaluator import Evaluator
from shoal.engine.runners import Passes
from shoal.engine.selfcheck import Choice, choose_runner
from shoal.engine.store import Store
from shoal.models.dense import DenseModel
from shoal.models.load import load_dense
from shoal.objectives.base import Objective
from shoal.objectives.build import build_objective
from shoal.pipeline import folder as run_folder
from shoal.pipeline.listener import Listener
from shoal.pipeline.prepare import Prepared, tokenisation


@dataclass(frozen=True)
class SearchResult:
    """What a search found and what it took.

    Attributes:
        plan: The plan.
        run_dir: The folder of the run.
        outcome: The evaluations behind the plan.
        passes: Work done in this process.
        seconds: Wall time in this process.
        estimate: What was announced before.
        runner: How masks were run.
        not_finite: Masks whose loss was not finite.
        dense: The loaded model.
    """

    plan: Plan
    run_dir: Path
    outcome: Outcome
    passes: Passes
    seconds: float
    estimate: Estimate
    runner: str
    not_finite: tuple[Mask, ...]
    dense: DenseModel


@dataclass(frozen=True)
class Ready:
    """A search that is ready to start.

    Attributes:
        objective: The objective, prepared.
        choice: How masks will be run, and why.
        estimate: What it will take.
    """

    objective: Objective
    choice: Choice
    estimate: Estimate


def make_ready(request: Prepared, listener: Listener, dense: DenseModel) -> Ready:
    """Tokenise the data, choose how masks are run, and estimate the cost."""
    config = request.config
    listener.stage(f"Preparing {config.expression}")
    objective = build_objective(
        config.objective,
        request.calibration,
        dense,
        tokenisation=tokenisation(config),
        batch_tokens=config.batch_tokens,
        length=config.length,
        limit=config.limit,
    )
    widest = max(objective.batches, key=lambda b: b.tokens.input_ids.shape[1])
    share = cache_share(dense, objective, config.cache_memory)
    choice = choose_runner(dense, widest.tokens.to(dense.device), cache_bytes=share)
    listener.note(choice.reason)
    expected = estimate(dense, objective, choice.runner, request.forecast, share)
    return Ready(objective, choice, expected)


def run_search(
    request: Prepared,
    listener: Listener,
    dense: DenseModel | None = None,
    ready: Ready | None = None,
) -> SearchResult:
    """Search for the best mask, resuming where an earlier run of the same folder stopped.

    Args:
        request: The checked request.
        listener: Hears of the progress.
        dense: The model, where it is loaded already.
        ready: What `make_ready` returned, where it was called already.

    Returns:
        The plan and what it took; the plan also lies in the run folder.
    """
    config = request.config
    dense = dense or load(request, listener)
    ready = ready or make_ready(request, listener, dense)
    folder = config.run_dir or run_folder.default_folder(config, dense.source.id)
    run_folder.open_folder(folder, config, dense.source.id)
    objective, runner = ready.objective, ready.choice.runner
    context = {
        "model": dense.fingerprint,
        "dtype": dense.dtype_name,
        "objective": objective.expression,
        "data": objective.fingerprint,
    }
    path = config.store or folder / run_folder.STORE
    with Store(path, context, objective.weights) as store:
        announce(listener, request, ready, len(store))
        listener.work((request.forecast.evaluations + 1) * len(objective.batches))
        evaluator = Evaluator(
            dense, objective, runner, store, lambda done, planned: listener.advance()
        )
        begin = time.perf_counter()
        outcome = drive(
            config.search,
            request.space,
            request.k,
            config.seed,
            evaluator,
            budget=config.budget_evaluations,
            on_best=lambda evaluation, asked: listener.best(evaluation),
        )
        seconds = time.perf_counter() - begin
        listener.done()
    plan = make_plan(request, dense, objective, outcome)
    plan.save(folder / run_folder.PLAN)
    return SearchResult(
        plan,
        folder,
        outcome,
        runner.passes,
        seconds,
        ready.estimate,
        runner.name,
        tuple(evaluator.not_finite),
        dense,
    )


def load(request: Prepared, listener: Listener) -> DenseModel:
    """Load the model of a request."""
    listener.stage("Loading the model")
    if isinstance(request.model, DenseModel):
        return request.model
    return load_dense(
        request.model,
        device=request.config.device,
        dtype=request.config.dtype,
        config=request.hf_config,
    )


def announce(listener: Listener, request: Prepared, ready: Ready, known: int) -> None:
    """Say what the search will take before it starts."""
    cost, objective = request.forecast, ready.objective
    batches = len(objective.batches)
    listener.stage(
        f"Searching: {request.config.search.name}, {request.k} of {request.space.depth} blocks, "
        f"objective {objective.expression}"
    )
    listener.note(
        f"about {cost.evaluations} evaluations on {objective.num_examples} examples "
        f"({objective.num_tokens:,} tokens): {cost.shared * batches:,} block passes shared, "
        f"{cost.naive * batches:,} one by one"
    )
    listener.note(
        f"estimated {duration(ready.estimate.seconds)} and {ready.estimate.bytes / 1e9:.1f} GB of "
        "memory" + (f"; {known} evaluations are known from before" if known else "")
    )


def make_plan(request: Prepared, dense: DenseModel, objective: Objective, outcome: Outcome) -> Plan:
    """Write down what was found."""
    best = outcome.best
    return Plan(
        model=dense.ref,
        mask=best.mask,
        objective=objective.expression,
        search=request.config.search.model_dump(),
        score=Score(
            mean=best.mean,
            stderr=best.stderr if best.stderr == best.stderr else None,
            dense=outcome.dense.mean,
            examples=objective.num_examples,
        ),
        evaluations=outcome.evaluations,
        data={**objective.data, "objective": request.config.objective.model_dump()},
        dtype=dense.dtype_name,
        seed=request.config.seed,
    )


def duration(seconds: float) -> str:
    """A duration as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"
