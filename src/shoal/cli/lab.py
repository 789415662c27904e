"""`shoal lab`: the in-context regression lab."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from shoal.cli.options import with_config
from shoal.config.lab import PRESETS, TrainConfig, preset_named
from shoal.config.lab_run import LabRunConfig
from shoal.core import fingerprint

_PRESETS = "; ".join(f"{name} ({summary})" for name, (summary, _) in PRESETS.items())

lab = App(name="lab", help="Small transformers trained from scratch, and what removing does.")


@lab.command
@with_config(TrainConfig, leave_out=())
def train(
    *,
    preset: Annotated[str, Parameter(help=f"sizes to start from: {_PRESETS}")] = "small",
    out: Path | None = None,
    device: str = "auto",
    options: dict[str, Any],
) -> None:
    """Train an in-context regression transformer from scratch.

    Running it again goes on where it stopped.

    Parameters
    ----------
    out
        Folder to write to (default lab-PRESET-HASH, the same for the same options).
    device
        auto, cpu, cuda, cuda:N or mps.
    """
    from shoal.cli.screen import Screen
    from shoal.cli.screen import out as screen
    from shoal.pipeline.lab.train import run_training

    base = preset_named(preset).model_dump(mode="json")
    config = TrainConfig.read(base | options)
    folder = out or Path(f"lab-{preset}-{fingerprint.of_json(config.model_dump(mode='json'))[:6]}")
    result = run_training(config, folder, device=device, listener=Screen())
    last = result.log[-1]
    screen.print(
        f"squared error at {config.points} points: {last.last:.3g}; mean over prefixes "
        f"{last.validation:.3g}; {last.seconds / 60:.1f} min\nwritten to {result.folder}",
        markup=False,
        soft_wrap=True,
    )


@lab.command
@with_config(LabRunConfig, leave_out=())
def run(*, json: bool = False, options: dict[str, Any]) -> None:
    """Remove blocks where the functions are not those of training, and see why that helps or not.

    For each model and shift: TALE on some functions, judged on others beside controls; what that
    does to the geometry of hidden states; interventions. Ends with the claims and their answers.
    Running it again goes on where it stopped.

    Parameters
    ----------
    json
        Print the results as JSON.
    """
    from shoal.cli.lab_results import print_run
    from shoal.cli.screen import Screen
    from shoal.cli.screen import out as screen
    from shoal.pipeline.lab.run import run_lab

    result = run_lab(LabRunConfig.read(options), Screen())
    if json:
        screen.print_json(result.run.model_dump_json())
        return
    print_run(result.run)
    screen.print(f"written to {result.folder}", markup=False, soft_wrap=True)
