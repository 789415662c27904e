"""`shoal geometry`: how hidden states change with the task, and what removing blocks does."""

from pathlib import Path
from typing import Any

from shoal.cli.options import with_config
from shoal.config.geometry import GeometryConfig


@with_config(GeometryConfig)
def geometry(
    model: str,
    /,
    *,
    plan: Path | None = None,
    any_model: bool = False,
    json: bool = False,
    options: dict[str, Any],
) -> None:
    """Compare hidden states on an adapted and a shifted task, and what removing blocks does.

    Measures norms and distances over depth, linear surrogates of every block, and, with a plan,
    removal, scaling and inverses of the blocks that it removes beside their controls. Writes
    geometry.json, a page and figures. Running it again goes on where it stopped.

    Parameters
    ----------
    model
        Hub id (org/name@revision), folder, GGUF file, or smollm2-135m; or a model of the lab:
        lab:NAME, or a folder of shoal lab train.
    plan
        A plan.json, run folder or exported checkpoint: what is removed.
    any_model
        Apply a plan that was made for another checkpoint of the same depth.
    json
        Print what was found as JSON.
    """
    from shoal.cli.common import quiet_libraries
    from shoal.cli.geometry_results import print_geometry
    from shoal.cli.screen import Screen, out
    from shoal.pipeline.geometry.run import run_geometry

    quiet_libraries()
    config = GeometryConfig.read({**options, "model": model})
    result = run_geometry(config, model, plan=plan, any_model=any_model, listener=Screen())
    if json:
        out.print_json(result.geometry.model_dump_json())
        return
    print_geometry(result.geometry)
    for note in result.geometry.notes:
        out.print(note, markup=False, soft_wrap=True)
    out.print(f"written to {result.folder}", markup=False, soft_wrap=True)
