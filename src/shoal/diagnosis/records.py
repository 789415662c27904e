"""The typed results of a diagnosis: what diagnosis.json holds.

Quantities are named in `shoal.diagnosis.quantities`. Steps count from 1, the first token that is
written after the prompt.
"""

from typing import Any, Literal

from pydantic import Field

from shoal.core.plan import MaskField, ModelRef
from shoal.core.records import Curve, Mean, Record
from shoal.core.version import __version__


class SiteRow(Record):
    """One site of the dense model, left out or replaced alone."""

    site: str = Field(description="a block 12, its attention 12.attn, or its MLP 12.mlp")
    removed: bool = Field(description="whether the plan removes it")
    normed: dict[str, Mean] = Field(
        description="quantities at the site, the head applied behind the final norm; empty where "
        "the head cannot be applied there"
    )
    raw: dict[str, Mean] = Field(description="the same without the final norm")
    final: dict[str, Mean] = Field(
        description="quantities at the model's end, the other blocks in place; empty if not run"
    )


class Layerwise(Record):
    """Probe 1: each site alone, in the dense model's context."""

    mode: str = Field(description="dropped, or replaced by the other model's")
    prompts: int
    positions: int
    sites: tuple[SiteRow, ...]
    skipped: dict[str, str] = Field({}, description="sites that could not be run -> why")
    notes: tuple[str, ...] = ()


class TeacherForced(Record):
    """Probe 2: both models read the dense model's greedy continuations."""

    overall: dict[str, Mean]
    short: dict[str, Mean] = Field(description="the same over the first steps")
    short_steps: int
    steps: dict[str, Curve]
    dense_nll: Mean = Field(description="NLL per token of the text under the dense model, nats")
    other_nll: Mean
    sequence_kl: Mean = Field(
        description="KL summed over the steps of a prompt, nats, along the dense model's text"
    )


class Amplification(Record):
    """Where softmax amplifies: (1 - cos p) / (1 - cos z) at one temperature."""

    temperature: float
    ratio: float | None = Field(description="mean of 1 - cos p over mean of 1 - cos z")
    measured: float | None = Field(description="median over positions")
    predicted: float | None = Field(description="median of mean(z^2) / T^2 (1 - sum r^2)")
    amplified: float | None = Field(description="share of positions with a ratio above 1")
    predicted_amplified: float | None = Field(description="share predicted to be above 1")
    rank_correlation: float | None = Field(
        description="Spearman correlation of measured and predicted over positions"
    )
    means: dict[str, Mean] = Field(description="quantities of the probability space")


class TextMeasures(Record):
    """What generated texts look like, averaged over prompts."""

    length: Mean = Field(description="tokens written, EOS included")
    ended: Mean = Field(description="share that ended by EOS")
    distinct_1: Mean = Field(description="different tokens / tokens")
    distinct_2: Mean = Field(description="different pairs of tokens / pairs")
    distinct_3: Mean
    longest_repeat: Mean = Field(
        description="longest run of tokens that occurs before, over the length"
    )
    looping: Mean = Field(description="share of texts that end in a loop")
    surprise: Mean | None = Field(
        None, description="NLL per token under the dense model, nats: how odd it finds the text"
    )


class FreeRun(Record):
    """One pair of runs from the same prompts, the dense model's first.

    Steps at and before the first different token have one context in both runs, so what is compared
    there is the models; after it, the trajectories.
    """

    name: str = Field(description="pruned, or the name of a control")
    control: bool
    decoding: str = Field(description="greedy or sampled")
    temperature: float
    seeds: tuple[int, ...] = Field(description="of the dense model's samples; empty for greedy")
    diverged: Curve = Field(description="share of runs with a different token up to each step")
    first_divergence: Mean = Field(
        description="step of the first different token; one more than the length if none"
    )
    flip_rate: Mean = Field(description="share of steps with different tokens")
    before: dict[str, Mean] = Field(description="quantities up to the first different token")
    after: dict[str, Mean] = Field(description="quantities beyond it; empty if there is nothing")
    steps: dict[str, Curve]
    dense_text: TextMeasures
    other_text: TextMeasures
    text_change: dict[str, Mean] = Field(
        {}, description="other minus dense of every text measure, paired by prompt"
    )


class Example(Record):
    """A prompt with what the models wrote, as text."""

    prompt: str
    dense: str
    other: str
    first_divergence: int | None = Field(description="step of the first different token")


class FreeRuns(Record):
    """Probe 3: both models write by themselves; controls beside."""

    runs: tuple[FreeRun, ...]
    examples: tuple[Example, ...]


class Options(Record):
    """A multiple-choice task under its real option scoring, or by the letters of its options."""

    task: str
    split: str
    scoring: str = Field(description="options (log-likelihood of the text) or letters")
    items: int
    accuracy_dense: Mean
    accuracy_other: Mean
    accuracy_change: Mean = Field(description="other minus dense, paired")
    kept: Mean = Field(description="share of items whose chosen option stays")
    inside: dict[str, Mean] = Field(
        description="quantities over the options alone: subspace_*, from the options' scores"
    )
    vocabulary: dict[str, Mean] = Field(
        description="quantities over the whole vocabulary where the answer begins"
    )


class Retrieval(Record):
    """States as embeddings of texts, by cosine."""

    pooling: str = Field(description="mean or last")
    texts: int
    neighbours: int
    overlap: Mean = Field(description="share of a text's nearest neighbours that stay")
    rank_correlation: Mean = Field(
        description="Spearman correlation of a text's similarities to the others"
    )
    found_dense: Mean = Field(description="share of halves whose nearest is their other half")
    found_other: Mean
    found_change: Mean = Field(description="other minus dense, paired")
    hidden_gap: Mean | None = Field(description="1 - cosine of the embeddings themselves")


class Reason(Record):
    """A number that decided, and where the limits are."""

    measure: str
    meaning: str
    value: float
    low: float | None
    high: float | None
    count: int = Field(description="prompts or items behind it")
    safe: float = Field(description="limit of safe")
    broken: float = Field(description="limit of broken")
    level: str
    settled: bool = Field(
        description="whether the whole interval lies on the level, with enough items behind it"
    )


class Verdict(Record):
    """What the numbers say of one kind of use."""

    use: str = Field(description="choice, retrieval, short or long")
    level: str = Field(description="safe, risky or broken")
    settled: bool
    reasons: tuple[Reason, ...]
    advice: tuple[str, ...] = ()


class Subject(Record):
    """The model that is compared with the dense one."""

    name: str = Field(description="how it was named")
    kind: str = Field(description="plan or checkpoint")
    mask: MaskField | None = Field(None, description="what was removed, for a plan")
    objective: str | None = Field(None, description="objective that chose it, where known")
    depth: int
    parameters: int


class Diagnosis(Record):
    """Everything that was measured about one pair of models, and what it means."""

    schema_version: Literal[1] = 1
    dense: ModelRef
    dense_depth: int
    dense_parameters: int
    other: Subject
    settings: dict[str, Any] = Field(description="what was asked, with all defaults written out")
    layerwise: Layerwise | None = None
    teacher_forced: TeacherForced | None = None
    amplification: tuple[Amplification, ...] = ()
    free_runs: FreeRuns | None = None
    choices: tuple[Options, ...] = ()
    retrieval: tuple[Retrieval, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    notes: tuple[str, ...] = ()
    environment: dict[str, str] = Field({})
    seconds: dict[str, float] = Field({}, description="time that each part took; 0 if kept")
    shoal_version: str = __version__

    @property
    def worst(self) -> str:
        """The worst level of all verdicts."""
        return max((v.level for v in self.verdicts), key=LEVELS.index, default=LEVELS[0])


LEVELS = ("safe", "risky", "broken")
"""The levels of a verdict, the best first."""
