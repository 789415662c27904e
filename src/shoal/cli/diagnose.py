"""`shoal diagnose`: what a compressed model is still good for, and why."""

from pathlib import Path
from typing import Any, Literal

from shoal.cli.options import with_config
from shoal.config.diagnosis import DiagnosisConfig
from shoal.core.errors import UsageError

FAILED = 3
"""Exit code where a verdict is as bad as `--fail-on` says."""


@with_config(DiagnosisConfig)
def diagnose(
    model: str,
    /,
    *,
    plan: Path | None = None,
    against: str | None = None,
    fail_on: Literal["risky", "broken"] | None = None,
    any_model: bool = False,
    json: bool = False,
    options: dict[str, Any],
) -> int:
    """Say what a pruned or otherwise compressed model is still good for, and why.

    Compares it with the dense model in hidden, logit and probability space: site by site, along
    the dense model's text, and writing freely; on multiple choice and as an embedder. Writes
    diagnosis.json, a page and figures. Running it again goes on where it stopped.

    Parameters
    ----------
    model
        The dense model: hub id (org/name@revision), folder, GGUF file, or smollm2-135m.
    plan
        A plan.json, run folder or exported checkpoint: what is removed.
    against
        Instead of a plan, any checkpoint with the same vocabulary.
    fail_on
        Exit with code 3 where a verdict is this bad or worse.
    any_model
        Apply a plan that was made for another checkpoint of the same depth.
    json
        Print the diagnosis as JSON.
    """
    from shoal.cli.common import quiet_libraries
    from shoal.cli.diagnosis_results import print_diagnosis
    from shoal.cli.screen import Screen, out
    from shoal.diagnosis.records import LEVELS
    from shoal.pipeline.diagnosis.run import run_diagnosis

    quiet_libraries()
    config = DiagnosisConfig.read({**options, "model": model})
    if fail_on is not None and set(config.probes) <= {"layerwise"}:
        raise UsageError(
            "--fail-on judges verdicts, and the layerwise probe gives none. Add another to "
            "--probes."
        )
    result = run_diagnosis(
        config,
        model,
        plan=plan,
        against=against,
        any_model=any_model,
        listener=Screen(),
    )
    if json:
        out.print_json(result.diagnosis.model_dump_json())
    else:
        print_diagnosis(result.diagnosis)
        for note in result.diagnosis.notes:
            out.print(note, markup=False, soft_wrap=True)
        out.print(f"written to {result.folder}", markup=False, soft_wrap=True)
    worst = LEVELS.index(result.diagnosis.worst)
    return FAILED if fail_on is not None and worst >= LEVELS.index(fail_on) else 0
