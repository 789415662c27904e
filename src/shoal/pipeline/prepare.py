"""Everything that can be refused before any long work: model, budget, data, output folder."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from transformers import PreTrainedConfig, PreTrainedModel

from shoal.config.mixture import MixtureConfig, Term
from shoal.config.run import RunConfig
from shoal.config.searches import TaleConfig
from shoal.core.errors import UnsupportedModelError, UsageError
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.data import Corpus, PromptSet, Tokenisation, load_any
from shoal.engine.forecast import Forecast, forecast
from shoal.models.dense import DenseModel
from shoal.models.device import pick_device, pick_dtype
from shoal.models.discover import depth_of
from shoal.models.load import load_config
from shoal.models.source import Source, resolve
from shoal.objectives.build import DEFAULT_ITEMS, Data, check_kind, kind_of
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
        k: How many blocks to remove, or the most.
        forecast: How much the search evaluates.
        calibration: Calibration data of each term of the objective.
        report: Report data.
    """

    config: RunConfig
    model: PreTrainedModel | DenseModel | Source
    hf_config: PreTrainedConfig
    space: SearchSpace
    k: int
    forecast: Forecast
    calibration: tuple[Data, ...]
    report: tuple[Data, ...]


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
    k = units_to_remove(config, depth)
    SearchSpace.of_blocks(depth, config.protect).check_budget(k)
    space = block_space(hf_config, config.protect)
    if config.racing and isinstance(config.objective, MixtureConfig):
        raise UsageError(
            "--racing compares examples one by one, which a mixture has not. Leave it out, or "
            "search under one of its terms."
        )
    expected = forecast(config.search, space, k, config.seed, config.budget_evaluations)
    check_fitting(config, expected)
    calibration = tuple(calibration_data(config, term) for term in config.terms)
    reported = report_data(config) if report else ()
    if not config.allow_calibration_on_test:
        for term_data in calibration:
            for data in reported:
                check_disjoint(term_data, data)
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


def check_fitting(config: RunConfig, expected: Forecast) -> None:
    """Refuse a search that cannot work under the objective.

    Raises:
        UsageError: If it needs gradients or states that the objective has not, or would always
            return the dense model.
    """
    search, objectives = config.search, [term.objective for term in config.terms]
    needs_gradients = {"taylor", "gradients"} & set(expected.signals)
    for objective in objectives:
        if needs_gradients and not objective.differentiable:
            raise UsageError(
                f"{search.name} needs gradients here, and those of {objective.name} say nothing. "
                "Use nll, margin or likelihood, or rank by loss (cbo: --search.form pairwise)."
            )
        if expected.signals and not objective.scores_text:
            raise UsageError(
                f"{objective.name} generates its text, so there are no states to rank by. "
                "Use --search.rank loss."
            )
    kept = isinstance(search, TaleConfig) and search.result != "last"
    if kept and all(objective.dense_is_best for objective in objectives):
        raise UsageError(
            f"under {config.expression} the dense model is always the best, so tale would remove "
            "nothing. Use --search.result last: the deepest within epsilon."
        )


def units_to_remove(config: RunConfig, depth: int) -> int:
    """How many blocks a search removes; the most it may, where it decides itself."""
    if config.remove is None and not config.search.fixed_count:
        return min(depth - 1, depth - len(set(config.protect)))
    return config.num_removed(depth)


def calibration_data(config: RunConfig, term: Term) -> Data:
    """Load calibration data of a kind that an objective reads."""

    def load(limit: int | None) -> Data:
        return load_any(
            term.calibration,
            split=term.split,
            data_dir=config.data_dir,
            allow_test=config.allow_calibration_on_test,
            limit=limit,
        )

    # How much text is needed is known once it is tokenised.
    limit = None if term.objective.reads == ("text",) else term.limit or DEFAULT_ITEMS
    data = load(limit)
    check_kind(term.objective, kind_of(data), term.calibration)
    return load(None) if isinstance(data, Corpus) and limit is not None else data


def report_data(config: RunConfig) -> tuple[Data, ...]:
    """Load report data: the tasks asked for, or the calibration tasks' own report splits."""
    names = config.evaluate
    if not names:
        tasks = dict.fromkeys(term.calibration for term in config.terms)
        names = tuple(name for name in tasks if not Path(name).is_file())
    return tuple(load_report(name, config.data_dir, config.evaluate_limit) for name in names)


def check_disjoint(calibration: Data, report: Data) -> None:
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


def _examples(data: Data) -> set[object]:
    if isinstance(data, Corpus):
        return set(data.documents)
    if isinstance(data, PromptSet):
        return {item.prompt for item in data.items}
    return {tuple((c.context, c.continuation) for c in item.choices) for item in data.items}


def load_report(name: str, data_dir: str | None, limit: int | None) -> Data:
    """Load the report split of a task, or a file."""
    data = load_any(name, data_dir=data_dir, purpose="report")
    if not isinstance(data, Corpus) and limit is not None:
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
