"""The lab run: shift experiments and geometry of each model, the claims, what is written."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.config.lab_run import LabRunConfig
from shoal.core import fingerprint
from shoal.core.errors import UsageError
from shoal.core.plan import ModelRef, Plan, Score
from shoal.engine.artifacts import check_place
from shoal.lab.checkpoint import shipped
from shoal.lab.claims import all_claims
from shoal.lab.study import LabRun, of_best
from shoal.pipeline.figures import can_draw
from shoal.pipeline.folder import alone_in, check_claim, claim, environment_texts, replace_text
from shoal.pipeline.lab.cost import estimate
from shoal.pipeline.lab.model_parts import count_parts
from shoal.pipeline.lab.workers import OfModel, all_models
from shoal.pipeline.listener import Listener

RESULTS, PAGE, PARTS, FIGURES, PLANS = (
    "lab_run.json",
    "lab_run.html",
    "parts.sqlite",
    "figures",
    "plans",
)

FREE = frozenset({"out", "store", "workers", "batch"})
"""What changes no result."""


@dataclass(frozen=True)
class LabRunResult:
    """What was found, and where it was written."""

    run: LabRun
    folder: Path


def run_lab(config: LabRunConfig, listener: Listener | None = None) -> LabRunResult:
    """Run the experiments on some lab models.

    Args:
        config: The options.
        listener: Hears of the progress.

    Raises:
        UsageError: If a model is none, one is named twice, or the folder holds something else.
        NotFiniteError: If a model's losses are not finite.
    """
    listener = listener or Listener()
    wheres = _models(config)
    parts = [count_parts(config, where) for where in wheres]
    _check_geometry(config)
    wanted = {**config.model_dump(mode="json", exclude_none=True), "models": wheres}
    asked = {k: v for k, v in wanted.items() if k not in FREE}
    folder = config.out or Path(f"lab-run-{fingerprint.of_json(asked)[:6]}")
    options: dict[str, Any] = {
        "free": FREE,
        "results": (RESULTS, PARTS),
        "kind": "lab run",
        "flag": "--out",
    }
    store = config.store or folder / PARTS
    if config.store is not None:
        check_place(config.store)
    check_claim(folder, wanted, **options)
    listener.note(str(estimate(config, wheres)))
    claim(folder, wanted, **options)
    with alone_in(folder):
        listener.stage(f"{len(wheres)} model{'s' * (len(wheres) > 1)}, {sum(parts)} parts")
        listener.work(sum(parts))
        found = all_models(config, wheres, store, listener)
        listener.done()
        run = _assembled(wanted, found)
        _write(run, folder, listener)
    return LabRunResult(run, folder)


def _models(config: LabRunConfig) -> list[str]:
    wheres = list(shipped() if config.models is None else config.models)
    if not wheres:
        raise UsageError("no lab models: none come with this shoal. Train some, and name them.")
    names = [Path(where).name for where in wheres]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two models are called {name}. Name folders that differ, each once.")
    return wheres


def _check_geometry(config: LabRunConfig) -> None:
    """Refuse a geometry on a shift that is not tested."""
    unknown = set(config.geometry_shifts) - set(config.shifts)
    if unknown and config.geometry_shifts != LabRunConfig().geometry_shifts:
        raise UsageError(
            f"--geometry-shifts {min(unknown):g} is not among --shifts "
            f"{','.join(f'{s:g}' for s in config.shifts)}."
        )


def _assembled(wanted: dict[str, Any], found: Sequence[OfModel]) -> LabRun:
    models = tuple(one.shifts for one in found)
    geometries = tuple(placed for one in found for placed in one.geometries)
    chosen = of_best(models, geometries)
    forced = [f"{p.model} on {p.task}" for p in geometries if p not in chosen]
    notes: tuple[str, ...] = ()
    if forced:
        notes = (
            "where TALE removes nothing, the geometry is that of the best single removal: "
            f"{', '.join(forced)}",
        )
    return LabRun(
        settings=wanted,
        models=models,
        learning=tuple(one.learning for one in found),
        geometries=geometries,
        claims=all_claims(models, geometries),
        notes=notes,
        environment=environment_texts(),
        seconds={name: s for one in found for name, s in one.seconds.items()},
    )


def plans_of(run: LabRun) -> dict[str, Plan]:
    """File name -> the plan of each mask that was chosen, for `shoal geometry`."""
    found = {}
    for model in run.models:
        for shift in model.shifts:
            selection = shift.selection
            best = next(m for m in shift.masks if m.name == "best")
            if best.mask:
                found[f"{model.model}-{shift.sigma:g}.json"] = Plan(
                    model=ModelRef(
                        id=f"lab:{model.model}", revision=None, fingerprint=model.fingerprint
                    ),
                    mask=best.mask,
                    objective=f"squared error on {shift.task}",
                    search={"name": "tale", "epsilon": selection.epsilon},
                    granularity="block",
                    score=Score(
                        mean=best.selection if best.selection is not None else float("nan"),
                        dense=selection.dense,
                        examples=selection.functions,
                    ),
                    evaluations=selection.evaluations,
                    seed=model.seed,
                )
    return found


def _write(run: LabRun, folder: Path, listener: Listener) -> None:
    """Write the record and the plans, then the figures, then the page."""
    replace_text(folder / RESULTS, run.model_dump_json(indent=2) + "\n")
    (folder / PLANS).mkdir(exist_ok=True)
    for name, plan in plans_of(run).items():
        plan.save(folder / PLANS / name)
    if not can_draw(listener):
        return
    from shoal.report.lab.figures import lab_figures
    from shoal.report.lab.page import lab_page
    from shoal.report.page import write_page
    from shoal.report.style import save

    listener.stage("Drawing")
    figures = folder / FIGURES
    figures.mkdir(exist_ok=True)
    drawn = lab_figures(run)
    # The page reads figures that were not saved yet.
    write_page(lab_page(run, drawn), folder / PAGE)
    for name, figure in drawn.items():
        save(figure, figures / name)
