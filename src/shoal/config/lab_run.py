"""The options of a lab run."""

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, field_validator

from shoal.config.lists import numbers
from shoal.config.run import names
from shoal.config.shifts import ShiftSettings

Sigmas = Annotated[tuple[float, ...], BeforeValidator(numbers)]


class LabRunConfig(ShiftSettings):
    """Everything that `shoal lab run` does."""

    models: Annotated[tuple[str, ...] | None, BeforeValidator(names)] = Field(
        None, description="folders of lab models, or names of those that come with shoal; all those"
    )
    shifts: Sigmas = Field(
        (0.5, 1, 2, 3, 5, 10),
        description="half widths of the coefficients (deviations, if Gaussian) to test on",
    )
    geometry_shifts: Sigmas = Field(
        (0.5, 1, 2, 5, 10), description="of these, the ones whose geometry is taken; none if empty"
    )
    geometry: int = Field(96, ge=3, description="functions that the geometry is taken on")
    workers: int = Field(1, ge=1, description="processes, each at a model of its own")
    seed: int = Field(0, ge=0, description="seed of intervals and of random controls")
    out: Path | None = Field(
        None, description="folder to write to (default lab-run-HASH, the same for the same options)"
    )
    store: Path | None = Field(
        None, description="file of finished parts, to share them between runs"
    )

    @field_validator("models", "shifts")
    @classmethod
    def _some(cls, values: tuple[str | float, ...] | None) -> tuple[str | float, ...] | None:
        if values is not None and not values:
            raise ValueError("name at least one, or leave the option out.")
        return values

    @field_validator("shifts", "geometry_shifts")
    @classmethod
    def _positive(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        if not all(0 < v < float("inf") for v in values):
            raise ValueError("half widths are positive numbers.")
        return tuple(dict.fromkeys(values))
