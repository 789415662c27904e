"""`shoal demo`: a real model made shallower for two purposes, side by side; no network."""

from pathlib import Path


def demo(
    *,
    out: Path = Path("shoal-demo"),
    remove: int = 5,
    model: str = "smollm2-135m",
    dtype: str = "auto",
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Prune SmolLM2-135M for perplexity and for a task, and compare both with the dense model.

    Model and data come with the package; nothing is downloaded.

    Parameters
    ----------
    out
        Folder for both checkpoints, the runs and the report.
    remove
        Blocks to remove, of 30.
    model
        Another model to try it on.
    dtype
        auto, float32, bfloat16 or float16.
    overwrite
        Replace the checkpoints of an earlier demo.
    json
        Print the report as JSON.
    """
    from shoal.cli.common import quiet_libraries
    from shoal.cli.results import print_report
    from shoal.cli.screen import Screen
    from shoal.cli.screen import out as screen
    from shoal.pipeline.demo import run_demo

    quiet_libraries()
    result = run_demo(
        out, remove=remove, model=model, dtype=dtype, overwrite=overwrite, listener=Screen()
    )
    if json:
        screen.print_json(result.report.model_dump_json())
        return
    print_report(result.report)
    for name, folder in result.folders.items():
        screen.print(f"{name}: {folder}")
    screen.print(f"report: {result.report_file}")
    first = next(iter(result.folders.values()))
    screen.print(f'load one with: AutoModelForCausalLM.from_pretrained("{first}")', soft_wrap=True)
    screen.print(
        "The calibration sets were tiny, to be done in minutes, and a search overfits such sets. A "
        "serious run takes more, e.g. --limit 128.",
        soft_wrap=True,
    )
