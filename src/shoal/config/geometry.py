"""The options of a geometry: two tasks, what is removed, and how much of each is measured."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, Field, field_validator, model_validator

from shoal.config.lists import numbers
from shoal.config.lists import seeds as read_seeds
from shoal.config.run import ModelOptions, names

GeometryPart = Literal["profiles", "surrogates", "interventions"]

PARTS: tuple[GeometryPart, ...] = get_args(GeometryPart)

Metric = Literal["margin", "likelihood", "accuracy", "nll"]

MOST_ITEMS = 4096
"""Sequences beyond which the distances between all of them would fill the memory."""

LAB: dict[str, Any] = {
    "items": 256,
    "loss_items": 256,
    "alphas": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5),
    "ridges": (1e-6, 1e-3, 1e-1),
    "random_seeds": (0, 1, 2),
    "control_masks": 3,
    "skip_first": 0,
}
"""What is taken for a lab model, whose passes cost next to nothing, where nothing is asked for."""


def _sites(value: Any) -> Any:
    """Join sites that are given one by one: `[3, 7]` is `3,7`."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    listed = isinstance(value, Iterable) and not isinstance(value, str)
    return ",".join(map(str, value)) if listed else value


class GeometryConfig(ModelOptions):
    """Everything that `shoal geometry` does."""

    id: str | None = Field(
        None, description="task that the model is adapted to: a task or a file; lab: e.g. U(-1,1)"
    )
    ood: str | None = Field(
        None, description="shifted task: a task or a file; lab: coefficients, e.g. U(-5,5)"
    )
    remove: Annotated[str | None, BeforeValidator(_sites)] = Field(
        None, description="sites to remove instead of a plan's, e.g. 3,7 or 9-12,22.attn"
    )
    parts: Annotated[tuple[GeometryPart, ...], BeforeValidator(names)] = Field(
        PARTS, description=f"what to measure, of {', '.join(PARTS)}; the last needs a plan"
    )
    items: int = Field(24, ge=2, le=MOST_ITEMS, description="sequences per task; lab: 256")
    max_tokens: int = Field(128, ge=3, description="tokens of a sequence, its last ones")
    skip_first: int = Field(
        1, ge=0, description="first positions that no state counts, attention sinks; lab: 0"
    )
    metric: Annotated[tuple[Metric, ...], BeforeValidator(names)] = Field(
        (),
        description="loss of a task: margin, likelihood or accuracy of multiple choice, nll of "
        "texts and answers; the first that fits a task is taken, margin or nll by default",
    )
    loss_items: int = Field(
        24, ge=2, le=MOST_ITEMS, description="examples per task that losses are taken on; lab: 256"
    )
    surrogate_tokens: int | None = Field(
        None, ge=2, description="tokens that each surrogate is fitted on (default 20 per dimension)"
    )
    threshold: float = Field(
        0.9, le=1, allow_inf_nan=False, description="held-out R^2 below which surrogates are out"
    )
    alphas: Annotated[tuple[float, ...], BeforeValidator(numbers)] = Field(
        (0.0, 0.25, 0.5, 0.75, 1.0),
        description="scales of what the sites add; lab: in steps of 0.1 to 1, then 1.25,1.5",
    )
    ridges: Annotated[tuple[float, ...], BeforeValidator(numbers)] = Field(
        (1e-3,), description="ridges of the inverse surrogates; lab: 1e-6,1e-3,1e-1"
    )
    random_seeds: Annotated[tuple[int, ...], BeforeValidator(read_seeds)] = Field(
        (0,), description="random maps against the inverse: how many, or their seeds; lab: 3"
    )
    control_masks: int = Field(
        1, ge=0, description="random masks against the plan's, of as many other sites; lab: 3"
    )
    singles: bool = Field(False, description="also remove each block by itself")
    data_dir: str | None = Field(
        None, description="folder with one folder per task in the hub's schema, or 'embedded'"
    )
    bos: Literal["auto", "always", "never"] = Field(
        "auto", description="put BOS first: as the tokenizer does, always, or never"
    )
    seed: int = Field(0, ge=0, description="seed of the bootstrap, of splits and of control masks")
    out: Path | None = Field(
        None, description="folder to write to (default geometry/<model>-<id>-<ood>-<plan>)"
    )
    store: Path | None = Field(
        None, description="file of finished parts, to share them between geometries of one model"
    )

    def for_lab(self) -> Self:
        """These options with the lab's sizes where none were given."""
        missing = {name: value for name, value in LAB.items() if name not in self.model_fields_set}
        return self.model_copy(update=missing)

    @field_validator("parts")
    @classmethod
    def _some(cls, values: tuple[GeometryPart, ...]) -> tuple[GeometryPart, ...]:
        if not values:
            raise ValueError(f"name at least one part of {', '.join(PARTS)}.")
        return tuple(part for part in PARTS if part in values)

    @field_validator("alphas", "ridges")
    @classmethod
    def _scales(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        if not values or not all(0 <= v < float("inf") for v in values):
            raise ValueError("these are finite numbers of 0 or more, at least one.")
        return tuple(sorted(set(values)))

    @field_validator("random_seeds")
    @classmethod
    def _distinct(cls, values: tuple[int, ...]) -> tuple[int, ...]:
        if not values or len(set(values)) < len(values) or min(values) < 0:
            raise ValueError("seeds are distinct whole numbers of at least 0, at least one.")
        return values

    @model_validator(mode="after")
    def _two_tasks(self) -> Self:
        if self.id is None or self.ood is None:
            raise ValueError(
                "name both tasks: --id TASK, which the model is adapted to, and --ood TASK, the "
                "shifted one."
            )
        if self.id == self.ood:
            raise ValueError(
                f"--id and --ood are both {self.id}, and a task has no shift from itself. Name "
                "another for one of them."
            )
        if self.skip_first > self.max_tokens - 2:
            raise ValueError(
                f"without the first {self.skip_first} of at most {self.max_tokens} tokens no two "
                "are left to compare. Raise --max-tokens or lower --skip-first."
            )
        return self
