"""What the lab trains: the function family, the transformer, the schedule, and the presets."""

import re
from math import isfinite
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from shoal.config.base import Config
from shoal.core.errors import unknown_name

LARGEST = 1e6
"""Ends of ranges beyond which polynomials and their squares leave single precision."""


class Distribution(Config):
    """What numbers are drawn from: uniform between two ends, or Gaussian.

    Attributes:
        kind: `uniform` or `gaussian`.
        first: The lower end, or the mean.
        second: The upper end, or the standard deviation.
    """

    kind: Literal["uniform", "gaussian"]
    first: float
    second: float

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        if not (isfinite(self.first) and isfinite(self.second)):
            raise ValueError(f"the ends of {self} must be finite.")
        if max(abs(self.first), abs(self.second)) > LARGEST:
            raise ValueError(
                f"the ends of {self} must not be beyond {LARGEST:g}: squares overflow."
            )
        if self.kind == "uniform" and self.first == self.second:
            raise ValueError(f"{self} holds a single value. Give ends that differ, as in U(-1,1).")
        if self.kind == "uniform" and self.first > self.second:
            raise ValueError(f"{self} is empty. Write the lower end first, as U(-1,1).")
        if self.kind == "gaussian" and self.second <= 0:
            raise ValueError(f"the standard deviation of {self} must be positive, as in N(0,1).")
        return self

    @classmethod
    def uniform(cls, half_width: float) -> Self:
        """Uniform between -half_width and half_width."""
        return cls(kind="uniform", first=-half_width, second=half_width)

    @property
    def variance(self) -> float:
        """Its variance."""
        width = self.second - self.first
        return width * width / 12 if self.kind == "uniform" else self.second**2

    @property
    def bound(self) -> float:
        """The largest absolute value that it gives; infinite for a Gaussian."""
        return max(abs(self.first), abs(self.second)) if self.kind == "uniform" else float("inf")

    def __str__(self) -> str:
        letter = "U" if self.kind == "uniform" else "N"
        return f"{letter}({self.first:g},{self.second:g})"


_FORM = re.compile(r"([UuNn])\(\s*([^\s,()]+)\s*,\s*([^\s,()]+)\s*\)")


def read_distribution(value: Any) -> Any:
    """Read `U(-1,1)` or `N(0,2)`; other values are left to the validation of the class."""
    if not isinstance(value, str):
        return value
    match = _FORM.fullmatch(value.strip())
    try:
        if match is None:
            raise ValueError
        first, second = float(match[2]), float(match[3])
    except ValueError as error:
        raise ValueError(
            f'"{value}" is no distribution. Write U(low,high) or N(mean,deviation), e.g. U(-1,1).'
        ) from error
    kind = "uniform" if match[1] in "Uu" else "gaussian"
    return {"kind": kind, "first": first, "second": second}


DistributionField = Annotated[
    Distribution, BeforeValidator(read_distribution), PlainSerializer(str, return_type=str)
]


class FamilyConfig(Config):
    """A family of functions and what they are evaluated on."""

    degree: int = Field(1, ge=1, le=3, description="degree of the polynomials; 1 is linear")
    coefficients: DistributionField = Field(
        Distribution.uniform(1.0), description="distribution of each coefficient, e.g. U(-1,1)"
    )
    inputs: DistributionField = Field(
        Distribution.uniform(1.0), description="distribution of each x, e.g. N(0,1)"
    )


class LabModelConfig(Config):
    """The transformer: GPT-2's blocks between a linear read-in and a linear read-out."""

    layers: int = Field(12, ge=1, le=1000, description="transformer blocks")
    width: int = Field(64, ge=2, le=16_384, description="width of the hidden state")
    heads: int = Field(4, ge=1, le=16_384, description="attention heads")
    points: int = Field(21, ge=2, le=4096, description="pairs of x and y in a prompt, at most")

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"the width {self.width} is no multiple of {self.heads} heads.")
        return self


class TrainConfig(FamilyConfig, LabModelConfig):
    """Everything that determines a trained lab model."""

    steps: int = Field(8_000, ge=1, le=10**9, description="optimiser steps")
    batch: int = Field(32, ge=1, le=65_536, description="prompts per step")
    learning_rate: float = Field(1e-3, gt=0, allow_inf_nan=False, description="of Adam, at most")
    warmup: int = Field(300, ge=0, description="steps until the learning rate is reached")
    decay: Literal["none", "cosine"] = Field(
        "cosine", description="what the learning rate does after that; cosine ends near zero"
    )
    clip: float | None = Field(
        1.0, gt=0, allow_inf_nan=False, description="largest norm of the gradient"
    )
    first_points: int = Field(7, ge=2, description="pairs in a prompt at the beginning")
    more_points: int = Field(2, ge=0, description="pairs that are added each time")
    more_every: int = Field(500, ge=1, description="steps between additions")
    seed: int = Field(0, ge=0, lt=2**63, description="seed of the weights and the functions")

    @property
    def family(self) -> FamilyConfig:
        """The function family."""
        return FamilyConfig(degree=self.degree, coefficients=self.coefficients, inputs=self.inputs)

    @property
    def model(self) -> LabModelConfig:
        """The transformer."""
        return LabModelConfig(
            layers=self.layers, width=self.width, heads=self.heads, points=self.points
        )

    def points_at(self, step: int) -> int:
        """Pairs in the prompts of a step, counted from 0 (curriculum)."""
        return min(self.points, self.first_points + self.more_points * (step // self.more_every))


PRESETS: dict[str, tuple[str, TrainConfig]] = {
    "tiny": (
        "4 blocks, width 32, 11 points: about a minute, to see that it works",
        TrainConfig(layers=4, width=32, points=11, steps=300, warmup=50),
    ),
    "small": (
        "12 blocks, width 64, 21 points: half an hour on one core; comes trained",
        TrainConfig(),
    ),
    "paper": (
        "12 blocks, width 256, 41 points, 500,000 steps: for a GPU",
        TrainConfig(
            width=256,
            heads=8,
            points=41,
            steps=500_000,
            batch=64,
            learning_rate=1e-4,
            warmup=0,
            decay="none",
            clip=None,
            first_points=11,
            more_points=2,
            more_every=2000,
        ),
    ),
}
"""Name -> (what it is, its options)."""


def preset_named(name: str) -> TrainConfig:
    """A preset by name.

    Raises:
        UsageError: If there is none of that name.
    """
    if name not in PRESETS:
        raise unknown_name("preset", name, list(PRESETS))
    return PRESETS[name][1]
