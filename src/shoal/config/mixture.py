"""Weighted mixtures of objectives, and how any objective is written in one line.

margin                                   an objective on its default task
margin:arc_easy                          an objective on a task or a file
0.7*margin:arc_easy + 0.3*kl:wikitext2   a mixture
"""

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from shoal.config.base import Config, Named, pick
from shoal.config.objectives import OBJECTIVES, DataKind, ObjectiveConfig
from shoal.core.errors import UsageError

NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
TERM = re.compile(rf"(?:(?P<weight>{NUMBER})\s*\*\s*)?(?P<name>\w+)(?::(?P<task>.+))?")
# A plus joins terms only before something that looks like one, so that file names may hold it.
JOIN = re.compile(rf"\s*\+\s*(?=(?:{NUMBER}\s*\*|(?:{'|'.join(OBJECTIVES)})\s*(?::|\+|$)))")


class Term(Config):
    """One objective of a mixture.

    Attributes:
        weight: Its share.
        objective: The objective.
        task: Its calibration data; the objective's default task if None.
        split: Its calibration split; the run's if None.
        limit: Its calibration examples; the run's if None.
    """

    weight: float = Field(1.0, gt=0, allow_inf_nan=False)
    objective: Annotated[
        SerializeAsAny[ObjectiveConfig], BeforeValidator(lambda v: pick("objective", OBJECTIVES, v))
    ]
    task: str | None = None
    split: str | None = None
    limit: int | None = Field(None, ge=1)

    @property
    def calibration(self) -> str:
        """The calibration task or file."""
        return self.task or self.objective.default_task

    def __str__(self) -> str:
        return f"{self.objective.name}:{self.calibration}"


class MixtureConfig(ObjectiveConfig):
    """Several objectives at once."""

    implementation: ClassVar[str] = "shoal.engine.mixture:MixtureEvaluator"
    summary: ClassVar[str] = "a weighted sum, written 0.7*margin:arc_easy + 0.3*kl:wikitext2"
    reads: ClassVar[tuple[DataKind, ...]] = ()
    default_task: ClassVar[str] = ""
    name: Literal["mixture"] = "mixture"
    normalise: Literal["span", "raw"] = Field(
        "span", description="of a mixture: 0 is dense, 1 removing at random, for every term; or raw"
    )
    terms: tuple[Term, ...] = Field(min_length=2)

    @model_validator(mode="after")
    def _distinct(self) -> "MixtureConfig":
        names = [str(term) for term in self.terms]
        twice = next((n for n in names if names.count(n) > 1), None)
        if twice is not None:
            raise ValueError(f"{twice} stands in the mixture twice; add up its weights.")
        return self

    def __str__(self) -> str:
        return " + ".join(f"{term.weight:g}*{term}" for term in self.terms)


ALL_OBJECTIVES: dict[str, type[Named]] = {**OBJECTIVES, "mixture": MixtureConfig}
"""Name -> config class of every objective, the mixture included."""


def read_objective(value: Any) -> Any:
    """Turn the line form of an objective into the form of a file.

    Args:
        value: A name, an expression, or a mapping whose name may be an expression.

    Returns:
        A name or mapping; a single objective on a task has the extra key `task`.

    Raises:
        UsageError: If an expression cannot be read.
    """
    options = {"name": value} if isinstance(value, str) else value
    text = options.get("name") if isinstance(options, dict) else None
    if not isinstance(text, str) or not re.search(r"[:*+]", text):
        return value
    terms = [_read_term(part, text) for part in JOIN.split(text.strip())]
    rest = {k: v for k, v in options.items() if k != "name"}
    if len(terms) == 1:
        if terms[0].pop("weight", None) is not None:
            raise UsageError(f'"{text}" gives a weight to a single objective; leave it out.')
        task = {"task": terms[0]["task"]} if "task" in terms[0] else {}
        return {"name": terms[0]["objective"], **task, **rest}
    return {"name": "mixture", "terms": terms, **rest}


def _read_term(part: str, text: str) -> dict[str, Any]:
    match = TERM.fullmatch(part.strip())
    if match is None:
        raise UsageError(
            f'"{part.strip()}" in the objective "{text}" is no term. Write '
            "0.7*margin:arc_easy + 0.3*kl:wikitext2."
        )
    found: dict[str, Any] = {"objective": match["name"]}
    if match["weight"] is not None:
        found["weight"] = float(match["weight"])
    if match["task"] is not None:
        found["task"] = match["task"].strip()
    return found
