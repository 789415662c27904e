"""Options of the objectives; each class names its implementation and the kind of data it reads."""

from typing import ClassVar, Literal

from pydantic import Field

from shoal.config.base import Named, registry

DataKind = Literal["text", "choice"]


class ObjectiveConfig(Named):
    """Options that every objective has.

    Attributes:
        kind: The kind of data that it reads.
        default_task: The task it reads when none is named.
    """

    kind: ClassVar[DataKind]
    default_task: ClassVar[str]


class NllConfig(ObjectiveConfig):
    """Negative log-likelihood of text: what perplexity measures."""

    implementation: ClassVar[str] = "shoal.objectives.nll:NegativeLogLikelihood"
    summary: ClassVar[str] = "mean negative log-likelihood per token (perplexity)"
    kind: ClassVar[DataKind] = "text"
    default_task: ClassVar[str] = "wikitext2"
    name: Literal["nll"] = "nll"


class MarginConfig(ObjectiveConfig):
    """How much likelier the wrong choices are than the right one."""

    implementation: ClassVar[str] = "shoal.objectives.choice:Margin"
    summary: ClassVar[str] = "log-likelihood of the wrong choices minus that of the right one"
    kind: ClassVar[DataKind] = "choice"
    default_task: ClassVar[str] = "arc_easy"
    name: Literal["margin"] = "margin"
    normalise: Literal["token", "sum", "byte", "char"] = Field(
        "token",
        description="divide a choice's log-likelihood by its tokens, bytes, characters, or "
        "not at all (sum)",
    )
    pair: Literal["mean", "sum", "max"] = Field(
        "mean", description="how the wrong choices are joined"
    )


class LikelihoodConfig(ObjectiveConfig):
    """Negative log-likelihood of the right choice."""

    implementation: ClassVar[str] = "shoal.objectives.choice:Likelihood"
    summary: ClassVar[str] = "negative log-likelihood of the right choice"
    kind: ClassVar[DataKind] = "choice"
    default_task: ClassVar[str] = "arc_easy"
    name: Literal["likelihood"] = "likelihood"
    normalise: Literal["token", "sum", "byte", "char"] = Field(
        "token",
        description="divide a choice's log-likelihood by its tokens, bytes, characters, or "
        "not at all (sum)",
    )


class AccuracyConfig(ObjectiveConfig):
    """One minus the multiple-choice accuracy."""

    implementation: ClassVar[str] = "shoal.objectives.choice:Accuracy"
    summary: ClassVar[str] = "share of items whose likeliest choice is wrong"
    kind: ClassVar[DataKind] = "choice"
    default_task: ClassVar[str] = "arc_easy"
    name: Literal["accuracy"] = "accuracy"
    normalise: Literal["sum", "token", "byte", "char"] = Field(
        "sum", description="sum is lm-eval's acc, char its acc_norm"
    )


OBJECTIVES = registry(NllConfig, MarginConfig, LikelihoodConfig, AccuracyConfig)
"""Name -> config class of every objective."""
