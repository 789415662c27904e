"""Everything that can be refused before any long work: model, budget, data, output folder."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from transformers import PreTrainedConfig, PreTrainedModel

from shoal.config.mixture import MixtureConfig, Term
from shoal.config.run import RunConfig
from shoal.config.searches import TaleConfig
from shoal.core.amount import Budget
from shoal.core.errors import UnsupportedModelError, UsageError
from shoal.core.space import SearchSpace
from shoal.data import Corpus, PromptSet, Tokenisation, load_any
from shoal.engine.forecast import Forecast, forecast
from shoal.models.branches import BlockBranches
from shoal.models.dense import DenseModel
from shoal.models.device import pick_device, pick_dtype
from shoal.models.load import load_config
from shoal.models.source import Source, resolve
from shoal.objectives.build import DEFAULT_ITEMS, Data, check_kind, kind_of
from shoal.pipeline.space import (
    check_amount,
    count_budget,
    granularity_of,
    provisional_budget,
    search_space,
    weight_budget,
)
from shoal.surgery.fusing import why_not_apart
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
        budget: How much to remove, or the most.
        forecast: How much the search evaluates.
        calibration: Calibration data of each term of the objective.
        report: Report data.
        granularity: What one unit is.
    """

    config: RunConfig
    model: PreTrainedModel | DenseModel | Source
    hf_config: PreTrainedConfig
    space: SearchSpace
    budget: Budget
    forecast: Forecast
    calibration: tuple[Data, ...]
    report: tuple[Data, ...]
    granularity: str = "block"


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
    check_amount(config)
    space = search_space(hf_config, config)
    budget = provisional_budget(hf_config, config, space)
    budget.check(space)
    if config.racing and isinstance(config.objective, MixtureConfig):
        raise UsageError(
            "--racing compares examples one by one, which a mixture has not. Leave it out, or "
            "search under one of its terms."
        )
    expected = forecast(config.search, space, budget, config.seed, config.budget_evaluations)
    check_fitting(config, expected)
    calibration = tuple(calibration_data(config, term) for term in config.terms)
    reported = report_data(config) if report else ()
    if not config.allow_calibration_on_test:
        for term_data in calibration:
            for data in reported:
                check_disjoint(term_data, data)
    name = str(granularity_of(config))
    return Prepared(config, found, hf_config, space, budget, expected, calibration, reported, name)


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


def settled(request: Prepared, dense: DenseModel) -> Prepared:
    """The request with what only the loaded model can tell: its branches, and what they weigh.

    Raises:
        UsageError: If the budget cannot be met.
        UnsupportedModelError: If the model's blocks have no such parts.
    """
    config = request.config
    blocks = config.granularity == "block" or (
        config.granularity == "auto" and config.search.blocks_only
    )
    if blocks and not config.weighs:
        return request
    branches: Sequence[BlockBranches] | None = None
    if not blocks:
        try:
            branches = dense.branches
        except UnsupportedModelError:
            if config.granularity != "auto":
                raise
    space = search_space(request.hf_config, config, branches)
    if not space.units:
        raise UnsupportedModelError(
            f"{dense.config.model_type} has nothing that --granularity {config.granularity} could "
            "remove: its blocks do not consist of an attention and an MLP. Use --granularity block."
        )
    name = str(granularity_of(config, branches))
    if branches and (name == "half" or config.fusable) and not space.overlapping:
        raise UnsupportedModelError(
            f"{dense.config.model_type} has no half steps: {why_not_apart(branches[0])}, so what "
            "is left of two blocks cannot be fused. Use --granularity block, attn, mlp or attn+mlp."
        )
    budget = weight_budget(config, dense, config.batch_tokens) or count_budget(config, space)
    budget.check(space)
    expected = forecast(config.search, space, budget, config.seed, config.budget_evaluations)
    check_fitting(config, expected)
    return replace(request, space=space, budget=budget, forecast=expected, granularity=name)


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
