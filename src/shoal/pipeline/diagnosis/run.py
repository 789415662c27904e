"""The diagnosis stage: run the probes, judge, and write what was found."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.config.diagnosis import DiagnosisConfig
from shoal.diagnosis.records import Diagnosis
from shoal.diagnosis.verdict import verdicts
from shoal.engine.artifacts import Artifacts
from shoal.pipeline.cost import Cost
from shoal.pipeline.diagnosis.cost import cost_of
from shoal.pipeline.diagnosis.probes import Probes
from shoal.pipeline.diagnosis.request import (
    DIAGNOSIS,
    FIGURES,
    PAGE,
    PARTS,
    Request,
    check_request,
    claim_folder,
)
from shoal.pipeline.diagnosis.sides import (
    Models,
    load_models,
    make_sides,
    replacement,
    subject,
)
from shoal.pipeline.diagnosis.texts import read_texts
from shoal.pipeline.figures import can_draw
from shoal.pipeline.folder import alone_in, environment_texts, replace_text
from shoal.pipeline.kept import Kept
from shoal.pipeline.listener import Listener
from shoal.pipeline.plans import PlanLike
from shoal.pipeline.prepare import Model


@dataclass(frozen=True)
class DiagnosisResult:
    """What was found, and where it was written.

    Attributes:
        diagnosis: The numbers and verdicts.
        folder: Folder with diagnosis.json, the page and the figures.
        cost: What it was estimated to take.
    """

    diagnosis: Diagnosis
    folder: Path
    cost: Cost


def run_diagnosis(
    config: DiagnosisConfig,
    model: Model,
    *,
    plan: PlanLike | None = None,
    against: Model | None = None,
    any_model: bool = False,
    listener: Listener | None = None,
) -> DiagnosisResult:
    """Compare a model with a pruned or otherwise compressed one, and judge what it is good for.

    Parts that were finished before, in the same folder or store, are not computed again.

    Args:
        config: The options.
        model: The dense model.
        plan: What to remove from it.
        against: Or another checkpoint with the same vocabulary.
        any_model: Apply a plan that was made for another checkpoint of the same depth.
        listener: Hears of the progress.

    Raises:
        UsageError: If the request is wrong, or the two models are the same.
        UnsupportedModelError: If the model cannot do what a probe needs.
        NotFiniteError: If logits are not finite.
    """
    listener = listener or Listener()
    request = check_request(config, model, plan, against)
    models = load_models(request, listener, any_model=any_model)
    listener.stage("Preparing prompts, tasks and texts")
    texts = read_texts(request, models.dense)
    dense, other = make_sides(models, texts.batch, texts.batches(config.batch_tokens))
    path = config.store or request.folder / PARTS
    artifacts = Artifacts(path)
    probes = Probes(config, dense, other, replacement(models), texts, Kept(artifacts), listener)
    cost = cost_of(probes)
    listener.note(str(cost))
    claim_folder(request)
    with alone_in(request.folder):
        artifacts.attach(path)
        found = _diagnosed(request, models, probes)
        _write(found, request.folder, listener)
    return DiagnosisResult(found, request.folder, cost)


def _diagnosed(request: Request, models: Models, probes: Probes) -> Diagnosis:
    """Run what was asked for and judge it."""
    config, wanted = request.config, request.config.probes
    forced, amplification = probes.forced() if "teacher_forced" in wanted else (None, ())
    retrieval = probes.retrieval() if "retrieval" in wanted else ()
    notes = list(probes.texts.notes)
    if config.steps <= config.short_steps:
        notes.append(
            f"nothing is said of long generation: {config.steps} steps are no more than the "
            f"{config.short_steps} of a short one (--steps, --short-steps)"
        )
    if "layerwise" in wanted and models.against is not None and probes.replacement is None:
        notes.append(
            "each site alone: those of the dense model are left out, since the other checkpoint is "
            "of another class, depth or size and its sites cannot take their places"
        )
    free_runs = probes.free_runs() if "free_run" in wanted else None
    if free_runs is not None and not any(
        r.control and r.decoding == "greedy" for r in free_runs.runs
    ):
        notes.append("no control in another precision: the copy does not run")
    if "retrieval" in wanted and not retrieval:
        notes.append("no retrieval: the states that the head reads cannot be seen")
    found = Diagnosis(
        dense=models.dense.ref,
        dense_depth=models.dense.depth,
        dense_parameters=int(models.dense.module.num_parameters()),
        other=subject(request, models, probes.other),
        settings=_settings(request, models, probes),
        layerwise=probes.layerwise() if "layerwise" in wanted else None,
        teacher_forced=forced,
        amplification=amplification,
        free_runs=free_runs,
        choices=probes.choices() if "choice" in wanted else (),
        retrieval=retrieval,
        notes=tuple(notes),
        environment=environment_texts(),
        seconds=probes.kept.seconds,
    )
    return found.model_copy(update={"verdicts": verdicts(found, config.thresholds)})


def _settings(request: Request, models: Models, probes: Probes) -> dict[str, Any]:
    """What was asked, and what it came to."""
    tokenizer = models.dense.require_tokenizer()
    known = {
        "answer_tokens": [tokenizer.decode([t]) for t in probes.texts.candidates],
        "dtype": models.dense.dtype_name,
        "device": str(models.dense.device),
        "runner": probes.dense.runner.name,
    }
    data = [request.prompts, *request.choices, request.texts]
    origins = {d.name: f"{d.origin} ({d.split})" for d in data if d is not None}
    return {**request.wanted, **known, "data": origins}


def _write(found: Diagnosis, folder: Path, listener: Listener) -> None:
    """Write the record, then the figures, then the page."""
    text = found.model_dump_json(indent=2) + "\n"
    replace_text(folder / DIAGNOSIS, text)
    if not can_draw(listener):
        return
    from shoal.report.diagnosis.page import diagnosis_page
    from shoal.report.figures import diagnosis_figures, save
    from shoal.report.page import write_page

    listener.stage("Drawing")
    figures = folder / FIGURES
    figures.mkdir(exist_ok=True)
    for name, figure in diagnosis_figures(found).items():
        save(figure, figures / name)
    write_page(diagnosis_page(found), folder / PAGE)
