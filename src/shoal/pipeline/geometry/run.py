"""The geometry stage: measure the parts and write what was found."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.config.geometry import GeometryConfig
from shoal.engine.artifacts import Artifacts
from shoal.geometry.points import notes as point_notes
from shoal.geometry.records import Geometry, Linear
from shoal.geometry.signatures import signatures
from shoal.geometry.surrogates import ENOUGH
from shoal.pipeline.cost import Cost
from shoal.pipeline.figures import can_draw
from shoal.pipeline.folder import alone_in, environment_texts, replace_text
from shoal.pipeline.geometry.cost import cost_of
from shoal.pipeline.geometry.laboratory import LabSource, open_lab
from shoal.pipeline.geometry.language import open_language
from shoal.pipeline.geometry.parts import Parts
from shoal.pipeline.geometry.request import (
    FIGURES,
    GEOMETRY,
    PAGE,
    PARTS,
    Request,
    check_request,
    claim_folder,
)
from shoal.pipeline.geometry.subject import Subject, counted_of
from shoal.pipeline.kept import Kept
from shoal.pipeline.listener import Listener
from shoal.pipeline.plans import PlanLike
from shoal.pipeline.prepare import Model


@dataclass(frozen=True)
class GeometryResult:
    """What was found, and where it was written.

    Attributes:
        geometry: The numbers.
        folder: Folder with geometry.json, the page and the figures.
        cost: What it was estimated to take.
    """

    geometry: Geometry
    folder: Path
    cost: Cost


def run_geometry(
    config: GeometryConfig,
    model: Model,
    *,
    plan: PlanLike | None = None,
    any_model: bool = False,
    listener: Listener | None = None,
) -> GeometryResult:
    """Compare a model's hidden states on an adapted and a shifted task, and what pruning does.

    Parts that were finished before, in the same folder or store, are not computed again.

    Args:
        config: The options.
        model: The model; `lab:NAME` or a folder of `shoal lab train` is one of the lab.
        plan: What to remove from it.
        any_model: Apply a plan that was made for another checkpoint of the same depth.
        listener: Hears of the progress.

    Raises:
        UsageError: If the request is wrong.
        UnsupportedModelError: If the model has no single state per depth and position.
        NotFiniteError: If states are not finite.
    """
    listener = listener or Listener()
    request = check_request(config, model, plan)
    subject = _opened(request, listener, any_model=any_model)
    path = request.config.store or request.folder / PARTS
    artifacts = Artifacts(path)
    parts = Parts(request.config, subject, Kept(artifacts), listener)
    cost = cost_of(parts)
    listener.note(str(cost))
    claim_folder(request)
    with alone_in(request.folder):
        artifacts.attach(path)
        found = _found(request, parts)
        _write(found, request.folder, listener)
    return GeometryResult(found, request.folder, cost)


def _opened(request: Request, listener: Listener, *, any_model: bool) -> Subject:
    source, config, plan = request.source, request.config, request.plan
    if isinstance(source, LabSource):
        return open_lab(source, config, plan, listener, any_model=any_model)
    return open_language(source, config, plan, listener, any_model=any_model)


def _found(request: Request, parts: Parts) -> Geometry:
    """Measure what was asked for."""
    subject, wanted = parts.subject, request.config.parts
    profiles, changes = parts.profiles() if "profiles" in wanted else ({}, {})
    linear = parts.surrogates() if "surrogates" in wanted else ()
    return Geometry(
        model=subject.ref,
        depth=subject.stack.depth,
        width=subject.width,
        id=subject.id.side.texts.name,
        ood=subject.ood.side.texts.name,
        metric={"id": subject.id.side.metric, "ood": subject.ood.side.metric},
        mask=subject.mask,
        settings=_settings(request, subject),
        profiles=profiles,
        changes=changes,
        linear=linear,
        signatures=signatures(linear, subject.mask),
        points=parts.interventions() if "interventions" in wanted else (),
        notes=(*subject.notes, *_notes(parts, linear)),
        environment=environment_texts(),
        seconds=parts.kept.seconds,
    )


def _notes(parts: Parts, linear: Sequence[Linear]) -> list[str]:
    """What limits the surrogates and the interventions."""
    subject, found = parts.subject, []
    enough = ENOUGH * subject.width
    for distribution, task in (("id", subject.id), ("ood", subject.ood)):
        fitted = [one.tokens for one in linear if one.distribution == distribution]
        if fitted and min(fitted) < enough:
            found.append(
                f"surrogates on {task.side.texts.name} are fitted on {min(fitted)} tokens, fewer "
                f"than {ENOUGH} per dimension ({enough}): their R^2 and ranks vary"
            )
    if "interventions" not in parts.config.parts or subject.mask is None:
        return found
    found += point_notes(subject.stack, subject.mask, parts.settings)
    states = 2 * counted_of(subject.ood.side.fitting) // (3 * len(subject.classes))
    if subject.mask.whole_blocks_only and states < enough:
        found.append(
            f"inverse surrogates are fitted on about {states} states of "
            f"{subject.ood.side.texts.name}, fewer than {ENOUGH} per dimension ({enough}): "
            "their R^2 says how well"
        )
    return found


def _settings(request: Request, subject: Subject) -> dict[str, Any]:
    """What was asked, and what it came to."""
    tasks = {"id": subject.id.described, "ood": subject.ood.described}
    return {**request.wanted, **subject.settings, "tasks": tasks}


def _write(found: Geometry, folder: Path, listener: Listener) -> None:
    """Write the record, then the figures, then the page."""
    replace_text(folder / GEOMETRY, found.model_dump_json(indent=2) + "\n")
    if not can_draw(listener):
        return
    from shoal.report.geometry.figures import geometry_figures
    from shoal.report.geometry.page import geometry_page
    from shoal.report.page import write_page
    from shoal.report.style import save

    listener.stage("Drawing")
    figures = folder / FIGURES
    figures.mkdir(exist_ok=True)
    for name, figure in geometry_figures(found).items():
        save(figure, figures / name)
    write_page(geometry_page(found), folder / PAGE)
