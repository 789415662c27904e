"""`shoal evaluate`: perplexity, multiple choice, size and speed."""

from pathlib import Path
from typing import Any

from shoal.cli.options import with_config
from shoal.config.run import RunConfig

FIELDS = {"data_dir", "length", "bos", "device", "dtype", "batch_tokens", "seed", "objective"}


@with_config(RunConfig, leave_out=set(RunConfig.model_fields) - FIELDS)
def evaluate(
    model: str,
    /,
    *,
    tasks: str,
    plan: Path | None = None,
    limit: int | None = None,
    speed: bool = True,
    any_model: bool = False,
    json: bool = False,
    options: dict[str, Any],
) -> None:
    """Measure a model on tasks, and beside it the pruned one if a plan is given.

    Answers are generated as --objective exact_match and its options say, or as in the plan.

    Parameters
    ----------
    model
        Hub id, folder, GGUF file, or smollm2-135m.
    tasks
        Task names or files, separated by commas.
    plan
        A plan.json or run folder: also measure without the blocks that it removes.
    limit
        Examples per task: blocks of text or items.
    speed
        Time prefill and decode.
    any_model
        Apply a plan that was made for another checkpoint of the same depth.
    json
        Print the report as JSON.
    """
    import shoal
    from shoal.cli.common import quiet_libraries
    from shoal.cli.results import print_report
    from shoal.cli.screen import Screen, out

    quiet_libraries()
    report = shoal.evaluate(
        model,
        tasks,
        plan=plan,
        limit=limit,
        speed=speed,
        any_model=any_model,
        listener=Screen(),
        **options,
    )
    if json:
        out.print_json(report.model_dump_json())
    else:
        print_report(report)
