"""From an objective's config and loaded data to a prepared objective."""

from typing import Any

from shoal.config.objectives import ObjectiveConfig
from shoal.core import fingerprint
from shoal.core.errors import UsageError
from shoal.data.encode import Tokenisation
from shoal.data.items import ChoiceSet, Corpus, PromptSet
from shoal.models.dense import DenseModel
from shoal.objectives.base import Objective
from shoal.objectives.options import BuildOptions

Data = Corpus | ChoiceSet | PromptSet
"""Calibration or report data of any kind."""

DEFAULT_ITEMS = 128
"""Calibration items where no limit is given; the number of paper A."""

WORDS = {"text": "text", "choice": "multiple choice", "prompt": "prompts"}
"""Kinds of data as people say them."""


def kind_of(data: Data) -> str:
    """The kind of data."""
    if isinstance(data, Corpus):
        return "text"
    return "choice" if isinstance(data, ChoiceSet) else "prompt"


def build_objective(
    config: ObjectiveConfig,
    data: Data,
    dense: DenseModel,
    *,
    tokenisation: Tokenisation,
    **options: Any,
) -> Objective:
    """Tokenise the data and prepare an objective on them.

    Args:
        config: The objective and its options.
        data: Data of a kind that the objective reads.
        dense: The model; its tokenizer is used.
        tokenisation: The policy for special tokens.
        **options: The other fields of `BuildOptions`.

    Raises:
        UsageError: If the data are of the wrong kind, too short, or too long for the model.
    """
    check_kind(config, kind_of(data), data.name)
    objective: Objective = config.load()()
    own = config.model_dump(exclude={"name"})
    for name, value in own.items():
        setattr(objective, name, value)
    asked = BuildOptions(tokenisation, **options)
    prepared = objective.prepare(data, dense, asked)
    objective.expression = f"{config.name}:{data.name}"
    objective.fingerprint = fingerprint.of_json([config.name, own, prepared.content])
    objective.data = {
        "name": data.name,
        "split": data.split,
        "origin": data.origin,
        "fingerprint": data.fingerprint,
        "tokenisation": tokenisation.describe(dense.require_tokenizer()),
        **prepared.described,
    }
    return objective


def check_kind(config: ObjectiveConfig, kind: str, name: str) -> None:
    """Refuse data of a kind that an objective does not read.

    Raises:
        UsageError: If it does not.
    """
    if kind not in config.reads:
        needs = " or ".join(WORDS[k] for k in config.reads)
        raise UsageError(
            f"the objective {config.name} reads {needs}, but {name} is {WORDS[kind]}. "
            f"Its default task is {config.default_task}."
        )
