"""All in one go: search, export, measure."""

from dataclasses import dataclass
from pathlib import Path

from shoal.config.objectives import ExactMatchConfig
from shoal.config.run import RunConfig
from shoal.core.errors import ShoalError, UsageError
from shoal.core.plan import Plan
from shoal.evaluation.tasks import TaskSettings
from shoal.models.dense import DenseModel
from shoal.pipeline.listener import Listener
from shoal.pipeline.measure import Report, report
from shoal.pipeline.prepare import Prepared, tokenisation
from shoal.pipeline.search import SearchResult, load, run_search
from shoal.surgery.card import Result
from shoal.surgery.config import attention_mix
from shoal.surgery.export import ExportReport, export

REPORT = "report.json"


@dataclass(frozen=True)
class PruneResult:
    """What pruning did.

    Attributes:
        search: The search and its plan.
        export: The checkpoint and its checks.
        report: Dense and pruned side by side.
    """

    search: SearchResult
    export: ExportReport
    report: Report


def settings_of(request: Prepared) -> TaskSettings:
    """How the tasks of a request are run."""
    config = request.config
    generated = [t.objective for t in config.terms if isinstance(t.objective, ExactMatchConfig)]
    return TaskSettings(
        tokenisation(config),
        config.batch_tokens,
        config.length,
        config.evaluate_limit,
        generated[0] if generated else None,
    )


def run_prune(
    request: Prepared, listener: Listener, dense: DenseModel | None = None
) -> PruneResult:
    """Search, write the checkpoint, and measure what was lost.

    Raises:
        UsageError: If no output folder was named.
    """
    out = request.config.out
    if out is None:
        raise UsageError("say where the pruned checkpoint goes: --out DIR.")
    if not request.report:
        listener.note(
            "no report data, so quality is not measured: name tasks or files with --evaluate"
        )
    dense = dense or load(request, listener)
    found = run_search(request, listener, dense)
    if not found.plan.mask.removed:
        reason = (found.plan.details or {}).get("stopped_because")
        raise ShoalError(
            f"{request.config.search.name} found no block that can go"
            + (f" (stopped by: {reason})" if reason else "")
            + f", so no checkpoint is written. The plan is in {found.run_dir}; a larger "
            "--search.epsilon, --search.result last or a larger budget removes more."
        )
    measured = report(
        dense,
        {"pruned": found.plan.mask},
        request.report,
        settings_of(request),
        listener,
        seed=request.config.seed,
    )
    written = write_checkpoint(dense, found.plan, out, measured, request.config, listener)
    measured = with_disk_bytes(measured, "pruned", written.bytes)
    save_report(measured, found.run_dir / REPORT, out / f"shoal_{REPORT}")
    return PruneResult(found, written, measured)


def write_checkpoint(
    dense: DenseModel,
    plan: Plan,
    out: Path,
    measured: Report | None,
    config: RunConfig,
    listener: Listener,
    name: str = "pruned",
) -> ExportReport:
    """Export a plan, with what was measured in its model card."""
    listener.stage(f"Writing {out}")
    gone = [kind for kind, kept in attention_mix(dense.config, plan.mask).items() if not kept]
    if gone:
        listener.note(f"no block with {' or '.join(gone)} is left")
    written = export(
        dense,
        plan.mask,
        out,
        plan=plan,
        overwrite=config.overwrite,
        results=None if measured is None else result_rows(measured, name),
    )
    listener.note(
        f"{written.parameters_after / 1e6:.1f} M parameters, {written.bytes / 1e6:.0f} MB; "
        f"reloaded, logits agree within {written.max_logit_difference:.1g}"
    )
    return written


def result_rows(measured: Report, name: str) -> list[Result]:
    """The lines of a model card's results table."""
    rows = {m.name: m for m in measured.models}
    after = {(m.task, m.name): m for m in rows[name].metrics}
    return [
        Result(f"{m.task} ({m.split}), {m.name}", m.value, after[m.task, m.name].value)
        for m in rows["dense"].metrics
    ]


def with_disk_bytes(measured: Report, name: str, disk_bytes: int) -> Report:
    """A report with the size of one model's files filled in."""
    models = tuple(
        m.model_copy(update={"size": m.size.model_copy(update={"disk_bytes": disk_bytes})})
        if m.name == name
        else m
        for m in measured.models
    )
    return measured.model_copy(update={"models": models})


def save_report(measured: Report, *paths: Path) -> None:
    """Write a report as JSON."""
    for path in paths:
        path.write_text(measured.model_dump_json(indent=1) + "\n", encoding="utf-8")
