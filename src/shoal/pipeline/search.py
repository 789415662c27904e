"""The search stage: from a checked request to a plan."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from shoal.config.mixture import MixtureConfig
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask
from shoal.core.plan import Plan, Score
from shoal.engine.artifacts import Artifacts
from shoal.engine.driver import Limits, Outcome, drive
from shoal.engine.estimate import Estimate
from shoal.engine.ledger import TraceRow
from shoal.engine.racing import Racer
from shoal.engine.runners import Passes
from shoal.models.dense import DenseModel
from shoal.models.load import load_dense
from shoal.objectives.base import ScoringObjective
from shoal.pipeline import folder as run_folder
from shoal.pipeline.figures import draw_trace
from shoal.pipeline.listener import Listener
from shoal.pipeline.prepare import Prepared, settled
from shoal.pipeline.ready import SPAN_MASKS, Ready, make_ready, open_evaluator
from shoal.pipeline.space import described
from shoal.pipeline.trace import TraceFile


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
        racing: What racing saved, in one sentence, where it was on.
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
    racing: str | None = None


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
    request = settled(request, dense)
    folder = config.run_dir or run_folder.default_folder(config, dense.source.id)
    path = config.store or folder / run_folder.STORE
    artifacts = Artifacts(path)
    ready = ready or make_ready(request, listener, dense, artifacts)
    run_folder.open_folder(folder, config, dense.source.id)
    with ExitStack() as stack:
        stack.enter_context(run_folder.alone_in(folder))
        opened = open_evaluator(
            stack,
            request,
            ready,
            dense,
            path,
            artifacts,
            lambda done, planned: listener.advance(),
        )
        artifacts.attach(path)
        announce(listener, request, ready, opened.known)
        trace = stack.enter_context(TraceFile(folder / run_folder.TRACE))
        rows: list[TraceRow] = []

        def hear(new: Sequence[TraceRow], leader: Evaluation) -> None:
            trace.write(new)
            rows.extend(new)
            listener.best(leader, rows[-1] if rows else None)

        begin = time.perf_counter()
        listener.work((request.forecast.evaluations + 1) * ready.num_batches)
        try:
            outcome = drive(
                config.search,
                request.space,
                request.budget,
                config.seed,
                opened.evaluator,
                opened.signals,
                limits=limits(request),
                on_batch=hear,
            )
        finally:
            listener.done()
        seconds = time.perf_counter() - begin
    if len(rows) > 1 and len({row.loss for row in rows}) == 1:
        listener.note(
            f"every mask has the loss {rows[0].loss:.4g}, so the plan is arbitrary: the objective "
            "does not tell masks apart on these examples"
        )
    plan = make_plan(request, dense, ready, outcome)
    plan.save(folder / run_folder.PLAN)
    draw_trace(rows, outcome, plan, folder, listener)
    raced = opened.evaluator.summary() if isinstance(opened.evaluator, Racer) else None
    return SearchResult(
        plan,
        folder,
        outcome,
        sum((t.source.passes for t in ready.terms), Passes()),
        seconds,
        ready.estimate,
        "+".join(dict.fromkeys(t.runner for t in ready.terms)),
        tuple(dict.fromkeys(m for e in opened.evaluators for m in e.not_finite)),
        dense,
        raced,
    )


def limits(request: Prepared) -> Limits:
    """The budget of a request."""
    minutes = request.config.budget_minutes
    return Limits(request.config.budget_evaluations, None if minutes is None else 60 * minutes)


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
    config, cost = request.config, request.forecast
    batches = ready.num_batches
    fixed = config.search.fixed_count
    listener.stage(
        f"Searching: {config.search.name}, {'' if fixed else 'at most '}"
        f"{described(request.budget, request.space)}, objective {config.expression}"
    )
    about = "at most" if cost.at_most or config.racing else "about"
    plural = "s" * (cost.evaluations != 1)
    passes = (
        f"{cost.shared * batches:,.0f} block passes shared, {cost.naive * batches:,.0f} one by one"
        if all(isinstance(t.objective, ScoringObjective) for t in ready.terms)
        else "answers are generated, which masks do not share"
    )
    listener.note(
        f"{about} {cost.evaluations} evaluation{plural} on {ready.num_examples} examples "
        f"({ready.num_tokens:,} tokens): {passes}"
    )
    if cost.cut:
        listener.note(
            f"--budget-evaluations {config.budget_evaluations} ends the search early; the best "
            "mask by then is the plan"
        )
    if isinstance(config.objective, MixtureConfig) and config.objective.normalise == "span":
        listener.note(f"before that {SPAN_MASKS} random masks, for the span of each term")
    if cost.signals:
        extra = "a forward and backward pass" if "gradients" in cost.signals else "one pass"
        listener.note(f"before that {extra} over the data for {', '.join(cost.signals)}")
    about = "at most " if known else ""
    memory = f"{ready.estimate.bytes / 1e9:.1f} GB of memory"
    listener.note(
        f"estimated {about}{duration(ready.estimate.seconds)} and {memory}"
        + (f"; {known} evaluations are known from before" if known else "")
    )


def make_plan(request: Prepared, dense: DenseModel, ready: Ready, outcome: Outcome) -> Plan:
    """Write down what was found."""
    best, config = outcome.best, request.config
    data = [t.objective.data for t in ready.terms]
    objective = config.objective.model_dump()
    recorded = {**data[0]} if len(data) == 1 else {"terms": data}
    return Plan(
        model=dense.ref,
        mask=best.mask,
        objective=config.expression,
        search=config.search.model_dump(),
        granularity=request.granularity,
        budget=described(request.budget, request.space),
        score=Score(
            mean=best.mean,
            stderr=best.stderr if best.stderr == best.stderr else None,
            dense=outcome.dense.mean,
            examples=ready.num_examples,
        ),
        evaluations=outcome.evaluations,
        stopped=outcome.stopped,
        details=outcome.details or None,
        data={**recorded, "objective": objective},
        dtype=dense.dtype_name,
        seed=config.seed,
    )


def duration(seconds: float) -> str:
    """A duration as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"
