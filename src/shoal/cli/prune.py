"""`shoal prune`: search, export and measure in one go."""

from typing import Any

from shoal.cli.common import merged
from shoal.cli.options import with_config
from shoal.config.run import RunConfig


@with_config(RunConfig)
def prune(model: str, /, *, json: bool = False, options: dict[str, Any]) -> None:
    """Search for blocks to remove, write the checkpoint, and measure what was lost.

    Parameters
    ----------
    model
        Hub id (org/name@revision), folder, GGUF file, or smollm2-135m.
    json
        Print the report as JSON.
    """
    execute(merged(model, options), json)


def execute(config: RunConfig, json: bool) -> None:
    """Prune as a config says."""
    from shoal.cli.common import quiet_libraries
    from shoal.cli.results import print_report
    from shoal.cli.screen import Screen, out
    from shoal.cli.search import print_plan
    from shoal.core.errors import UsageError
    from shoal.pipeline.prepare import prepare
    from shoal.pipeline.prune import run_prune

    quiet_libraries()
    if config.out is None:
        raise UsageError("say where the pruned checkpoint goes: --out DIR.")
    result = run_prune(prepare(config), Screen())
    if json:
        out.print_json(result.report.model_dump_json())
        return
    print_plan(result.search)
    print_report(result.report)
    out.print(f"checkpoint: {result.export.folder}")
    out.print(f"run folder: {result.search.run_dir}")
