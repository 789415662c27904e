"""Scores of single blocks: computed, written as JSON, drawn."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from shoal.config.run import RunConfig
from shoal.core.errors import NotFiniteError, UsageError, unknown_name
from shoal.core.space import SearchSpace
from shoal.engine.signals import ModelSignals
from shoal.models.dense import DenseModel
from shoal.models.device import pick_device, pick_dtype
from shoal.models.discover import depth_of
from shoal.models.load import load_dense
from shoal.objectives.build import build_objective
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
    windows: Sequence[int] = (),
    out: Path | None = None,
    listener: Listener | None = None,
) -> ScoreResult:
    """Score the blocks of a model, write the scores and draw them.

    Args:
        config: The model and the data, by the objective whose data they are.
        scores: Names of scores.
        model: The model, where it is an object rather than named in the options.
        windows: Lengths of the angular windows that are wanted.
        out: Folder to write to; `scores/<model>` by default.
        listener: Hears of the progress.

    Raises:
        UsageError: If anything about the request is wrong; before the weights are loaded, except
            where the objective has nothing that a score could be taken of.
    """
    listener = listener or Listener()
    names = check_names(scores)
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
    listener.stage(f"Scoring {depth} blocks on {objective.num_examples} examples of {data.name}")
    signals = ModelSignals(dense, objective, SearchSpace.of_blocks(depth), {})
    report = ScoreReport(
        model=dense.ref,
        depth=depth,
        dtype=dense.dtype_name,
        device=str(dense.device),
        objective=objective.expression,
        examples=objective.num_examples,
        data={**objective.data, "objective": term.objective.model_dump()},
        scores={name: tuple(signals.units(name)) for name in names},
        angular_windows=_windows(signals, names, dense),
    )
    broken = [name for name, values in report.scores.items() if not all(map(isfinite, values))]
    if broken:
        raise NotFiniteError(
            f"{broken[0]} is not finite for some blocks. Look for NaN or infinite weights, or try "
            "--dtype float32."
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
