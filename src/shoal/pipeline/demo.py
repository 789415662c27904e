"""The demo: one model, two objectives, both checkpoints, one table."""

from dataclasses import dataclass
from pathlib import Path

from shoal.config.run import RunConfig
from shoal.core.mask import Mask
from shoal.core.plan import Plan
from shoal.evaluation.tasks import TaskSettings
from shoal.models.load import load_dense
from shoal.pipeline.listener import Listener
from shoal.pipeline.measure import Report, report
from shoal.pipeline.prepare import Prepared, load_report, prepare, tokenisation
from shoal.pipeline.prune import save_report, with_disk_bytes, write_checkpoint
from shoal.pipeline.ready import make_ready
from shoal.pipeline.search import duration, run_search
from shoal.surgery.staging import check_target

# Sizes that two cores search in a few minutes; a serious run takes ten times as much.
LENGTH, BLOCKS, ITEMS, REPORT_BLOCKS, REPORT_ITEMS = 256, 4, 40, 24, 200

OBJECTIVES = {"perplexity": ("nll", "wikitext2", BLOCKS), "margin": ("margin", "arc_easy", ITEMS)}


@dataclass(frozen=True)
class DemoResult:
    """What the demo made.

    Attributes:
        report: Dense and both pruned models side by side.
        report_file: The same as JSON.
        folders: Name -> checkpoint.
    """

    report: Report
    report_file: Path
    folders: dict[str, Path]


def run_demo(
    out: Path,
    *,
    remove: int = 5,
    model: str = "smollm2-135m",
    dtype: str = "auto",
    length: int = LENGTH,
    overwrite: bool = False,
    listener: Listener | None = None,
) -> DemoResult:
    """Prune a model for perplexity and for a task margin, and compare.

    Args:
        out: Folder for everything that is written.
        remove: Blocks to remove.
        model: The model.
        dtype: The dtype of search, checkpoints and report.
        length: Tokens per block of text.
        overwrite: Replace the checkpoints of an earlier demo.
        listener: Hears of the progress.
    """
    listener = listener or Listener()
    requests: dict[str, Prepared] = {}
    for name, (objective, task, limit) in OBJECTIVES.items():
        folder = out / f"pruned-for-{name}"
        config = RunConfig.read(
            {
                "model": model,
                "objective": objective,
                "task": task,
                "limit": limit,
                "length": length,
                "data_dir": "embedded",
                "remove": remove,
                "granularity": "block",
                "dtype": dtype,
                "run_dir": out / "runs" / name,
                "out": folder,
                "overwrite": overwrite,
            }
        )
        check_target(folder, None, overwrite=overwrite)
        requests[f"pruned for {name}"] = prepare(config, report=False)
    first = next(iter(requests.values()))
    data = [load_report(task, "embedded", REPORT_ITEMS) for _, task, _ in OBJECTIVES.values()]
    listener.stage(f"Loading {model}")
    dense = load_dense(first.model, dtype=dtype, config=first.hf_config)
    ready = {name: make_ready(r, listener, dense, {}) for name, r in requests.items()}
    searching = sum(r.estimate.seconds for r in ready.values())
    listener.note(
        f"both searches are estimated to take {duration(searching)}; measuring and writing come "
        "on top"
    )
    plans: dict[str, Plan] = {}
    masks: dict[str, Mask] = {}
    for name, request in requests.items():
        plans[name] = run_search(request, listener, dense, ready[name]).plan
        masks[name] = plans[name].mask
        listener.note(f"{name}: removes {masks[name]}")
    settings = TaskSettings(
        tokenisation(first.config), first.config.batch_tokens, length, REPORT_BLOCKS
    )
    measured = report(dense, masks, data, settings, listener)
    folders: dict[str, Path] = {}
    for name, request in requests.items():
        folder = folders[name] = request.config.out or out
        written = write_checkpoint(
            dense, plans[name], folder, measured, request.config, listener, name
        )
        measured = with_disk_bytes(measured, name, written.bytes)
    report_file = out / "report.json"
    save_report(measured, report_file)
    return DemoResult(measured, report_file, folders)
