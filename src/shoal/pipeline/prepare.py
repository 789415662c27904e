"""Everything that can be refused before any long work: model, budget, data, output folder."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from transformers import PreTrainedConfig, PreTrainedModel

from shoal.config.run import RunConfig
from shoal.core.errors import UnsupportedModelError, UsageError
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.data import ChoiceSet, Corpus, Tokenisation, load_any
from shoal.engine.driver import Forecast, forecast
from shoal.models.dense import DenseModel
from shoal.models.device import pick_device, pick_dtype
from shoal.models.discover import depth_of
from shoal.models.load import load_config
from shoal.models.source import Source, resolve
from shoal.objectives.build import DEFAULT_ITEMS
from shoal.surgery.config import check_prunable
from shoal.surgery.fields import per_layer_fields
from shoal.surgery.staging import check_target

Model: TypeAlias = str | PreTrainedModel | DenseModel
"""A model as users give it: a name, a transformers model, or a loaded dense model."""


@dataclass(frozen=True)
class Prepared:
    """A checked request.

    Attributes:
        config: The options.
        model: The model object, or the resolved source of its files.
        hf_config: The model's config.
        space: What may be removed.
        k: How many blocks to remove.
        forecast: How much the search evaluates.
        calibration: Calibration data.
        report: Report data.
    """

    config: RunConfig
    model: PreTrainedModel | DenseModel | Source
    hf_config: PreTrainedConfig
    space: SearchSpace
    k: int
    forecast: Forecast
    calibration: Corpus | ChoiceSet
    report: tuple[Corpus | ChoiceSet, ...]


def prepare(config: RunConfig, model: Model | None = None, *, report: bool = True) -> Prepared:
    """Check a request as far as is possible without the weights.

    Args:
        config: The options.
        model: The model, where it is an object rather than named in the options.
        report: Also load report data.

    Raises:
        UsageError: If anything about the request is wrong.
        UnsupportedModelError: If the model cannot be pruned.
        BudgetError: If the search needs more evaluations than allowed.
    """
    pick_dtype(config.dtype, pick_device(config.device), None)
    found, hf_config = locate(config.require_model() if model is None else model)
    if config.out is not None:
        folder = found.folder if isinstance(found, Source) else None
        check_target(config.out, folder, overwrite=config.overwrite)
        run_dir = config.run_dir
        if run_dir is not None and run_dir.resolve() == config.out.resolve():
            raise UsageError(
                f"--run-dir and --out are both {config.out}. The run and the checkpoint need "
                "folders of their own."
            )
    depth = depth_of(hf_config)
    k = config.num_removed(depth)
    SearchSpace.of_blocks(depth, config.protect).check_budget(k)
    space = block_space(hf_config, config.protect)
    expected = forecast(config.search, space, k, config.seed)
    if config.budget_evaluations is not None and expected.evaluations > config.budget_evaluations:
        raise UsageError(
            f"{config.search.name} evaluates about {expected.evaluations} masks here, more than "
            f"--budget-evaluations {config.budget_evaluations}. Raise it, remove fewer blocks, or "
            "use one_shot."
        )
    calibration = calibration_data(config)
    reported = report_data(config) if report else ()
    if not config.allow_calibration_on_test:
        for data in reported:
            check_disjoint(calibration, data)
    return Prepared(config, found, hf_config, space, k, expected, calibration, reported)


def locate(model: Model) -> tuple[PreTrainedModel | DenseModel | Source, PreTrainedConfig]:
    """Find a model's files and read its config, or take the object's."""
    if isinstance(model, str):
        source = resolve(model)
        return source, load_config(source)
    if not isinstance(model, PreTrainedModel | DenseModel):
        raise UsageError(
            f"a model is a name, a folder or a transformers model, not {type(model).__name__}."
        )
    return model, model.config


def tokenisation(config: RunConfig) -> Tokenisation:
    """The policy for special tokens."""
    return Tokenisation(bos=config.bos)


def calibration_data(config: RunConfig) -> Corpus | ChoiceSet:
    """Load calibration data of the kind that the objective reads."""
    text = config.objective.kind == "text"
    data = load_any(
        config.calibration,
        split=config.split,
        data_dir=config.data_dir,
        # How much text is needed is known once it is tokenised.
        limit=None if text else config.limit or DEFAULT_ITEMS,
        allow_test=config.allow_calibration_on_test,
    )
    if isinstance(data, Corpus) is not text:
        kinds = {True: "text", False: "multiple choice"}
        raise UsageError(
            f"the objective {config.objective.name} reads {kinds[text]}, but {config.calibration} "
            f"is {kinds[not text]}. Its default task is {config.objective.default_task}."
        )
    return data


def report_data(config: RunConfig) -> tuple[Corpus | ChoiceSet, ...]:
    """Load report data: the tasks asked for, or the calibration task's own report split."""
    names = config.evaluate
    if not names and not Path(config.calibration).is_file():
        names = (config.calibration,)
    return tuple(load_report(name, config.data_dir, config.evaluate_limit) for name in names)


def check_disjoint(calibration: Corpus | ChoiceSet, report: Corpus | ChoiceSet) -> None:
    """Refuse a report on the examples that the blocks are chosen by.

    Raises:
        UsageError: If the two share an example.
    """
    shared = _examples(calibration) & _examples(report)
    if shared:
        raise UsageError(
            f"{report.origin} shares {len(shared)} examples with the calibration data "
            f"({calibration.origin}), so its score would flatter. Report on other data, or insist "
            "with --allow-calibration-on-test."
        )


def _examples(data: Corpus | ChoiceSet) -> set[object]:
    if isinstance(data, Corpus):
        return set(data.documents)
    return {tuple((c.context, c.continuation) for c in item.choices) for item in data.items}


def load_report(name: str, data_dir: str | None, limit: int | None) -> Corpus | ChoiceSet:
    """Load the report split of a task, or a file."""
    data = load_any(name, data_dir=data_dir, purpose="report")
    if isinstance(data, ChoiceSet) and limit is not None:
        data = load_any(name, data_dir=data_dir, purpose="report", limit=limit)
    return data


class Writable:
    """Whether a mask leaves a model that can be written; remembers its answers.

    Args:
        hf_config: The dense model's config.
    """

    def __init__(self, hf_config: PreTrainedConfig) -> None:
        self._config = hf_config
        self._reasons: dict[Mask, str | None] = {}

    def why_not(self, mask: Mask) -> str | None:
        """The reason why a mask cannot be written, or None."""
        if mask not in self._reasons:
            try:
                check_prunable(self._config, mask)
                self._reasons[mask] = None
            except UnsupportedModelError as error:
                self._reasons[mask] = str(error)
        return self._reasons[mask]

    def __call__(self, mask: Mask) -> bool:
        """Whether the mask can be written."""
        return self.why_not(mask) is None


def block_space(hf_config: PreTrainedConfig, protect: Iterable[int]) -> SearchSpace:
    """The blocks that may be removed from a model.

    Raises:
        UnsupportedModelError: If none may, with the reason for the first.
    """
    writable = Writable(hf_config)
    space = SearchSpace.of_blocks(depth_of(hf_config), protect, writable)
    reasons = [writable.why_not(space.dense.without(unit)) for unit in space.units]
    if reasons and all(reasons):
        raise UnsupportedModelError(f"no block of this model can be removed: {reasons[0]}")
    if not any(reasons) and not per_layer_fields(hf_config):
        # Nothing in the config depends on the blocks, so single masks speak for all.
        return SearchSpace.of_blocks(space.depth, protect)
    return space
