"""The report stage: dense and pruned through the same code, with paired differences."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict
from transformers import PreTrainedModel

from shoal.core.mask import Mask
from shoal.core.plan import MaskField
from shoal.evaluation.results import Difference, Metric, differences
from shoal.evaluation.speed import Size, Speed, peak_memory, size, speed_of
from shoal.evaluation.tasks import TaskSettings, measure
from shoal.models.dense import DenseModel
from shoal.objectives.build import Data
from shoal.pipeline.listener import Listener
from shoal.surgery.skipping import pruned_model


class ModelReport(BaseModel):
    """What was measured about one model.

    Attributes:
        name: What it is called in the table.
        mask: What was removed from the dense model.
        size: Parameters and bytes on disk.
        speed: Prefill and decode at each batch size; empty if not timed.
        metrics: Task metrics.
        differences: Paired differences from the dense model.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)
    name: str
    mask: MaskField
    size: Size
    speed: tuple[Speed, ...]
    metrics: tuple[Metric, ...]
    differences: tuple[Difference, ...] = ()


class Report(BaseModel):
    """Dense and pruned models side by side.

    Attributes:
        models: The models, the dense one first.
        dtype: Dtype that everything was measured in.
        device: Device that everything was measured on.
        peak_memory: Most bytes that the process held so far.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    schema_version: int = 1
    models: tuple[ModelReport, ...]
    dtype: str
    device: str
    peak_memory: int


def report(
    dense: DenseModel,
    masks: dict[str, Mask],
    data: Sequence[Data],
    settings: TaskSettings,
    listener: Listener,
    *,
    folders: dict[str, Path] | None = None,
    speed: bool = True,
    seed: int = 0,
) -> Report:
    """Measure the dense model and some masks of it.

    Args:
        dense: The model.
        masks: Name -> mask, without the dense one.
        data: Report data.
        settings: How tasks are tokenised and run.
        listener: Hears of the progress.
        folders: Name -> checkpoint on disk, for its size.
        speed: Also time prefill and decode.
        seed: Seed of the bootstrap.
    """
    rows = {"dense": Mask.dense(dense.depth), **masks}
    distinct = list(dict.fromkeys(rows.values()))
    metrics: dict[Mask, list[Metric]] = {mask: [] for mask in distinct}
    for part in data:
        listener.stage(f"Measuring {part.name} ({part.split})")

        def step(done: int, planned: int) -> None:
            if done == 1:
                listener.work(planned)
            listener.advance()

        for mask, found in zip(
            distinct, measure(dense, distinct, part, settings, step), strict=True
        ):
            metrics[mask] += found
        listener.done()
    models: dict[Mask, PreTrainedModel] = {
        mask: pruned_model(dense, mask) if len(mask) else dense.module for mask in distinct
    }
    timed: dict[Mask, list[Speed]] = {mask: [] for mask in distinct}
    if speed:
        listener.stage("Timing prefill and decode")
        timed = dict(zip(distinct, speed_of([models[m] for m in distinct]), strict=True))
    places = dict(folders or {})
    if dense.source.folder is not None:
        places["dense"] = dense.source.folder
    return Report(
        models=tuple(
            ModelReport(
                name=name,
                mask=mask,
                size=size(models[mask], places.get(name)),
                speed=tuple(timed[mask]),
                metrics=tuple(metrics[mask]),
                differences=tuple(
                    differences(metrics[rows["dense"]], metrics[mask], seed) if len(mask) else ()
                ),
            )
            for name, mask in rows.items()
        ),
        dtype=dense.dtype_name,
        device=str(dense.device),
        peak_memory=peak_memory(dense.device),
    )
