"""Scores of single blocks or sub-layers: computed, written as JSON, drawn."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from shoal.config.run import RunConfig
from shoal.core.errors import NotFiniteError, UsageError, unknown_name
from shoal.core.mask import Part
from shoal.core.space import SearchSpace
from shoal.core.tiling import span_of
from shoal.core.units import NOUNS, Granularity, Unit, units_of_granularity
from shoal.engine.signals import ModelSignals, unit_name
from shoal.models.dense import DenseModel
from shoal.models.device import pick_device, pick_dtype
from shoal.models.discover import depth_of
from shoal.models.load import load_dense
from shoal.objectives.build import build_objective
from shoal.objectives.scores.moments import why_not
from shoal.objectives.scores.table import SCORES
from shoal.pipeline.figures import can_draw
from shoal.pipeline.listener import Listener
from shoal.pipeline.prepare import Model, calibration_data, locate, tokenisation
from shoal.report.scores import ScoreReport

REPORT, FIGURE = "scores.json", "scores"


@dataclass(frozen=True)
class ScoreResult:
    """Scores, and where they were written.

    Attributes:
        report: The scores.
        folder: The folder with `scores.json` and the figures.
        lengths: Lengths of the angular windows that were asked for.
    """

    report: ScoreReport
    folder: Path
    lengths: tuple[int, ...]


def run_score(
    config: RunConfig,
    scores: Sequence[str],
    *,
    model: Model | None = None,
    granularity: Granularity | str = Granularity.BLOCK,
    windows: Sequence[int] = (),
    out: Path | None = None,
    listener: Listener | None = None,
) -> ScoreResult:
    """Score the blocks of a model or parts of them, write the scores and draw them.

    Args:
        config: The model and the data, by the objective whose data they are.
        scores: Names of scores.
        model: The model, where it is an object rather than named in the options.
        granularity: What is scored: `block`, `half`, `attn`, `mlp` or `attn+mlp`.
        windows: Lengths of the angular windows that are wanted.
        out: Folder to write to; `scores/<model>` by default.
        listener: Hears of the progress.

    Raises:
        UsageError: If anything about the request is wrong; before the weights are loaded, except
            where the objective has nothing that a score could be taken of, or the model no such
            parts.
        UnsupportedModelError: If parts of blocks are wanted and cannot be told.
    """
    listener = listener or Listener()
    names = check_names(scores)
    kind = _check_granularity(granularity, windows)
    pick_dtype(config.dtype, pick_device(config.device), None)
    found, hf_config = locate(config.require_model() if model is None else model)
    depth = depth_of(hf_config)
    lengths = _check_windows(windows, names, depth)
    if len(config.terms) != 1:
        raise UsageError("scores are taken on the data of one objective; name one, not a mixture.")
    term = config.terms[0]
    data = calibration_data(config, term)
    where = str(config.model or getattr(hf_config, "name_or_path", "") or "model")
    folder = _folder(out, where)
    listener.stage("Loading the model")
    dense = load_dense(found, device=config.device, dtype=config.dtype, config=hf_config)
    objective = build_objective(
        term.objective,
        data,
        dense,
        tokenisation=tokenisation(config),
        batch_tokens=config.batch_tokens,
        length=config.length,
        limit=term.limit,
    )
    units, by_block = _units(kind, dense), kind is Granularity.BLOCK
    noun = "blocks" if by_block else "units"
    listener.stage(
        f"Scoring {len(units)} {noun} on {objective.num_examples} examples of {data.name}"
    )
    signals = ModelSignals(dense, objective, SearchSpace(depth, units, noun=NOUNS[kind]), {})
    report = ScoreReport(
        model=dense.ref,
        depth=depth,
        dtype=dense.dtype_name,
        device=str(dense.device),
        objective=objective.expression,
        examples=objective.num_examples,
        data={**objective.data, "objective": term.objective.model_dump()},
        granularity=kind,
        units=() if by_block else tuple(map(unit_name, units)),
        scores={name: tuple(signals.units(name)) for name in names},
        angular_windows=_windows(signals, names, dense) if by_block else {},
    )
    broken = [name for name, values in report.scores.items() if not all(map(isfinite, values))]
    if broken:
        raise NotFiniteError(
            f"{broken[0]} is not finite for some {noun}. Look for NaN or infinite weights, or "
            "try --dtype float32."
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / REPORT).write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")
    if can_draw(listener):
        from shoal.report.figures import save, score_figure

        save(score_figure(report), folder / FIGURE)
    return ScoreResult(report, folder, lengths)


def check_names(scores: Sequence[str]) -> list[str]:
    """The names of scores, each once.

    Raises:
        UsageError: If one is unknown, or there is none.
    """
    for name in scores:
        if name not in SCORES:
            raise unknown_name("score", name, SCORES)
    if not scores:
        raise UsageError(f"name at least one score. Known: {', '.join(sorted(SCORES))}.")
    return list(dict.fromkeys(scores))


def _check_granularity(granularity: str, windows: Sequence[int]) -> Granularity:
    known = [g.value for g in Granularity if g is not Granularity.MIXED]
    if granularity not in known:
        raise unknown_name("granularity of scores", granularity, known)
    kind = Granularity(granularity)
    if windows and kind is not Granularity.BLOCK:
        raise UsageError(
            f"--windows are windows of whole blocks, and --granularity {kind} scores parts of "
            "them. Leave one of the two out."
        )
    return kind


def _units(kind: Granularity, dense: DenseModel) -> tuple[Unit, ...]:
    """The units of a granularity that the model has.

    Raises:
        UsageError: If it has none.
        UnsupportedModelError: If its sub-layers cannot be told.
    """
    units = units_of_granularity(kind, dense.depth)
    if kind is Granularity.BLOCK:
        return units
    reasons = [why_not(span_of(unit), dense.branches) for unit in units]
    there = tuple(u for u, reason in zip(units, reasons, strict=True) if reason is None)
    if not any(site.part is not Part.BLOCK for unit in there for site in unit):
        reason = next((r for r in reasons if r is not None), "the model has one block")
        what = "half step" if kind is Granularity.HALF else kind
        raise UsageError(
            f"--granularity {kind}: this model has no {what} that could be scored by itself: "
            f"{reason}. Use --granularity block."
        )
    return there


def _check_windows(windows: Sequence[int], names: Sequence[str], depth: int) -> tuple[int, ...]:
    if windows and "angular" not in names:
        raise UsageError("--windows are windows of the angular distance: add angular to --scores.")
    for length in windows:
        if not 1 <= length <= depth:
            raise UsageError(
                f"--windows {length}: a window has between 1 and {depth} blocks, as many as the "
                "model."
            )
    return tuple(dict.fromkeys(windows))


def _folder(out: Path | None, model: str) -> Path:
    folder = out or Path("scores") / re.sub(r"[^\w.%-]+", "-", Path(model).name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"the folder {folder} cannot be made: {error.strerror}. Choose another --out."
        ) from error
    return folder


def _windows(
    signals: ModelSignals, names: Sequence[str], dense: DenseModel
) -> dict[int, tuple[float, ...]]:
    """Every length: they come with the single blocks."""
    if "angular" not in names:
        return {}
    return {n: tuple(signals.windows("angular", n)) for n in range(1, dense.depth + 1)}
