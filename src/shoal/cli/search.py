"""`shoal search`: the search alone; writes a run folder with the plan."""

from typing import TYPE_CHECKING, Any

from shoal.cli.common import merged
from shoal.cli.options import with_config
from shoal.config.run import RunConfig

if TYPE_CHECKING:
    from shoal.pipeline.search import SearchResult


@with_config(RunConfig, leave_out=("model", "out", "overwrite", "evaluate", "evaluate_limit"))
def search(model: str, /, *, json: bool = False, options: dict[str, Any]) -> None:
    """Search for blocks to remove; writes plan, evaluations, config and environment.

    Running it again with the same options goes on where it stopped.

    Parameters
    ----------
    model
        Hub id (org/name@revision), folder, GGUF file, or smollm2-135m.
    json
        Print the plan as JSON.
    """
    from shoal.cli.common import quiet_libraries
    from shoal.cli.screen import Screen, out
    from shoal.pipeline.prepare import prepare
    from shoal.pipeline.search import run_search

    quiet_libraries()
    result = run_search(prepare(merged(model, options), report=False), Screen())
    if json:
        out.print_json(result.plan.model_dump_json())
        return
    print_plan(result)
    out.print(f"run folder: {result.run_dir}")


def print_plan(result: "SearchResult") -> None:
    """Print what a search found and what it took."""
    from shoal.cli.screen import out
    from shoal.core.layout import Layout
    from shoal.pipeline.search import duration

    plan, passes = result.plan, result.passes
    kept = ", ".join(map(str, Layout.of(plan.mask).slots))
    gone = ", ".join(map(str, plan.mask))
    out.print(f"removed: {gone}  {plan.mask}" if gone else "removed: nothing", markup=False)
    out.print(f"kept:    {kept}")
    if plan.score is not None:
        error = "" if plan.score.stderr is None else f" ± {plan.score.stderr:.4f}"
        out.print(
            f"{plan.objective}: {plan.score.mean:.4f}{error} (dense {plan.score.dense:.4f}), "
            f"lower is better, {plan.score.examples} calibration examples"
        )
    if plan.stopped is not None:
        out.print(f"the budget of {plan.stopped} ended the search; this is the best by then")
    for line in explained(plan.details or {}):
        out.print(line, markup=False)
    if result.racing is not None:
        out.print(result.racing)
    count = plan.evaluations or 0
    if passes.blocks:
        out.print(
            f"{count} mask{'s' * (count != 1)} in {duration(result.seconds)} "
            f"(estimated {duration(result.estimate.seconds)}): {passes.blocks:,.0f} block passes, "
            f"{passes.naive:,.0f} one by one"
        )


def explained(details: dict[str, Any]) -> list[str]:
    """What a search says of its result, a line each; lists are left to the plan."""
    return [
        f"{name.replace('_', ' ')}: {f'{value:.6g}' if isinstance(value, float) else value}"
        for name, value in details.items()
        if isinstance(value, str | int | float)
    ]
