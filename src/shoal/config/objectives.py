"""Options of the objectives; each class names its implementation and the kind of data it reads."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from shoal.config.base import Named, registry

DataKind = Literal["text", "choice", "prompt"]


class ObjectiveConfig(Named):
    """Options that every objective has.

    Attributes:
        reads: The kinds of data that it reads.
        default_task: The task it reads when none is named.
        dense_is_best: Whether the dense model has the least loss that there can be.
        scores_text: Whether it scores given text, of which state scores can be taken.
        differentiable: Whether gradients of its loss at the dense model say anything.
    """

    reads: ClassVar[tuple[DataKind, ...]]
    default_task: ClassVar[str]
    dense_is_best: ClassVar[bool] = False
    scores_text: ClassVar[bool] = True
    differentiable: ClassVar[bool] = True


class NllConfig(ObjectiveConfig):
    """Negative log-likelihood of text: what perplexity measures."""

    implementation: ClassVar[str] = "shoal.objectives.nll:NegativeLogLikelihood"
    summary: ClassVar[str] = "mean negative log-likelihood per token (perplexity)"
    reads: ClassVar[tuple[DataKind, ...]] = ("text",)
    default_task: ClassVar[str] = "wikitext2"
    name: Literal["nll"] = "nll"


class MarginConfig(ObjectiveConfig):
    """How much likelier the wrong choices are than the right one."""

    implementation: ClassVar[str] = "shoal.objectives.choice:Margin"
    summary: ClassVar[str] = "log-likelihood of the wrong choices minus that of the right one"
    reads: ClassVar[tuple[DataKind, ...]] = ("choice",)
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
    reads: ClassVar[tuple[DataKind, ...]] = ("choice",)
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
    reads: ClassVar[tuple[DataKind, ...]] = ("choice",)
    default_task: ClassVar[str] = "arc_easy"
    differentiable: ClassVar[bool] = False
    name: Literal["accuracy"] = "accuracy"
    normalise: Literal["sum", "token", "byte", "char"] = Field(
        "sum", description="sum is lm-eval's acc, char its acc_norm"
    )


class KlConfig(ObjectiveConfig):
    """Divergence of the next-token distribution from the dense model's, on given text."""

    implementation: ClassVar[str] = "shoal.objectives.kl:Divergence"
    summary: ClassVar[str] = "KL(dense || pruned) per token of text"
    reads: ClassVar[tuple[DataKind, ...]] = ("text",)
    default_task: ClassVar[str] = "wikitext2"
    dense_is_best: ClassVar[bool] = True
    differentiable: ClassVar[bool] = False
    name: Literal["kl"] = "kl"


class TrajectoryConfig(ObjectiveConfig):
    """Divergence from the dense model along what the dense model itself writes."""

    implementation: ClassVar[str] = "shoal.objectives.trajectory:Trajectory"
    summary: ClassVar[str] = "KL(dense || pruned) along the dense model's own continuations"
    reads: ClassVar[tuple[DataKind, ...]] = ("prompt", "choice", "text")
    default_task: ClassVar[str] = "wikitext2"
    dense_is_best: ClassVar[bool] = True
    differentiable: ClassVar[bool] = False
    name: Literal["trajectory"] = "trajectory"
    new_tokens: int = Field(64, ge=1, description="tokens that the dense model writes per prompt")
    prompt_tokens: int = Field(64, ge=1, description="tokens of a text that make a prompt")
    chat: bool = Field(False, description="wrap prompts in the model's chat template")


def _one_text(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


class ExactMatchConfig(ObjectiveConfig):
    """One minus the share of generated answers that are right."""

    implementation: ClassVar[str] = "shoal.objectives.exact_match:ExactMatch"
    summary: ClassVar[str] = "share of generated answers that are wrong; greedy decoding"
    reads: ClassVar[tuple[DataKind, ...]] = ("prompt", "choice")
    default_task: ClassVar[str] = "gsm8k"
    scores_text: ClassVar[bool] = False
    differentiable: ClassVar[bool] = False
    name: Literal["exact_match"] = "exact_match"
    new_tokens: int = Field(128, ge=1, description="most tokens that are generated")
    match: Literal["auto", "numeric", "text", "prefix"] = Field(
        "auto",
        description="numbers by value, texts after normalising, or a text that the answer starts "
        "with; auto takes numeric for answers that are numbers, text for others",
    )
    stop: Annotated[tuple[str, ...], BeforeValidator(_one_text)] = Field(
        (), description="texts that end an answer, besides the EOS token"
    )
    chat: bool = Field(False, description="wrap prompts in the model's chat template")


OBJECTIVES = registry(
    NllConfig,
    MarginConfig,
    LikelihoodConfig,
    AccuracyConfig,
    KlConfig,
    TrajectoryConfig,
    ExactMatchConfig,
)
"""Name -> config class of every objective."""
