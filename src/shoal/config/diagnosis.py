"""The options of a diagnosis."""

from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, field_validator

from shoal.config.lists import numbers
from shoal.config.lists import seeds as read_seeds
from shoal.config.run import ModelOptions, names, read_yaml
from shoal.config.thresholds import Thresholds

Probe = Literal["layerwise", "teacher_forced", "free_run", "choice", "retrieval"]

PROBES: tuple[Probe, ...] = get_args(Probe)


def _texts(value: Any) -> Any:
    """Read answers separated by `|`, which keeps the spaces that tokens begin with."""
    return tuple(value.split("|")) if isinstance(value, str) else value


def _thresholds(value: Any) -> Any:
    """Read thresholds from a file."""
    if isinstance(value, str | Path):
        return Thresholds.read(read_yaml(Path(value)))
    return Thresholds.read(value) if isinstance(value, dict) else value


class DiagnosisConfig(ModelOptions):
    """Everything that `shoal diagnose` does."""

    prompts: str = Field(
        "gsm8k", description="prompts to write from: a task (its report split) or a file"
    )
    num_prompts: int = Field(32, ge=1, description="how many prompts")
    prompt_tokens: int = Field(64, ge=1, description="tokens of a text that make a prompt")
    chat: bool = Field(False, description="wrap prompts in the model's chat template")
    steps: int = Field(64, ge=2, description="tokens that are written after each prompt")
    short_steps: int = Field(16, ge=1, description="steps that count as a short generation")
    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        1.0, description="temperature of the distributions and of sampling"
    )
    temperatures: Annotated[tuple[float, ...], BeforeValidator(numbers)] = Field(
        (0.5, 1.0, 2.0), description="temperatures at which amplification is measured"
    )
    seeds: Annotated[tuple[int, ...], BeforeValidator(read_seeds)] = Field(
        (0, 1, 2), description="sampled runs: how many, or their seeds, e.g. 5,7"
    )
    rounded_prompts: int = Field(
        16, ge=1, description="prompts of the control in another precision, which may be slow"
    )
    tasks: Annotated[tuple[str, ...], BeforeValidator(names)] = Field(
        ("arc_easy",), description="multiple-choice tasks or files, on their report splits"
    )
    items: int = Field(100, ge=1, description="items per task")
    answers: Annotated[tuple[str, ...], BeforeValidator(_texts)] = Field(
        (), description='answer tokens of the subspace, e.g. " yes| no"; the option letters if none'
    )
    texts: str = Field("wikitext2", description="texts to embed: a task or a file")
    num_texts: int = Field(128, ge=3, description="how many texts")
    neighbours: int = Field(10, ge=1, description="nearest neighbours that are compared")
    layer_prompts: int = Field(16, ge=1, description="prompts of the layerwise probe")
    layer_positions: int = Field(8, ge=1, description="positions of each of them")
    layer_final_prompts: int = Field(
        4, ge=1, description="prompts on which a site's effect at the model's end is taken"
    )
    probes: Annotated[tuple[Probe, ...], BeforeValidator(names)] = Field(
        PROBES, description=f"what to run, of {', '.join(PROBES)}"
    )
    thresholds: Annotated[Thresholds, BeforeValidator(_thresholds)] = Field(
        Thresholds(), description="YAML file with limits of safe and broken"
    )
    data_dir: str | None = Field(
        None, description="folder with one folder per task in the hub's schema, or 'embedded'"
    )
    bos: Literal["auto", "always", "never"] = Field(
        "auto", description="put BOS first: as the tokenizer does, always, or never"
    )
    seed: int = Field(0, ge=0, description="seed of the bootstrap")
    out: Path | None = Field(
        None, description="folder to write to (default diagnoses/<model>-<plan>)"
    )
    store: Path | None = Field(
        None, description="file of finished parts, to share them between diagnoses of one model"
    )

    @field_validator("temperatures")
    @classmethod
    def _positive(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        if not values or not all(0 < v < float("inf") for v in values):
            raise ValueError("temperatures are positive numbers, at least one.")
        return tuple(dict.fromkeys(values))

    @field_validator("tasks")
    @classmethod
    def _once(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(values))

    @field_validator("seeds")
    @classmethod
    def _distinct(cls, values: tuple[int, ...]) -> tuple[int, ...]:
        if not values or len(set(values)) < len(values) or min(values) < 0:
            raise ValueError("seeds are distinct whole numbers of at least 0, at least one.")
        return values

    @field_validator("probes")
    @classmethod
    def _some(cls, values: tuple[Probe, ...]) -> tuple[Probe, ...]:
        if not values:
            raise ValueError(f"name at least one probe of {', '.join(PROBES)}.")
        return tuple(dict.fromkeys(values))
