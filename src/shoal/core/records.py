"""What results are made of: frozen parts, means with intervals, curves."""

from pydantic import BaseModel, ConfigDict, Field


class Record(BaseModel):
    """A frozen part of the results; numbers that are not finite are written as text."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", arbitrary_types_allowed=True, ser_json_inf_nan="strings"
    )


class Mean(Record):
    """A mean over prompts or items with its 95% bootstrap interval."""

    value: float
    low: float | None = Field(description="None where there is a single prompt")
    high: float | None
    count: int = Field(description="prompts behind it")

    def __str__(self) -> str:
        interval = "" if self.low is None else f" [{self.low:.3g}, {self.high:.3g}]"
        return f"{self.value:.3g}{interval}"


class Curve(Record):
    """Means over prompts, step by step."""

    steps: tuple[int, ...]
    value: tuple[float, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    count: tuple[int, ...]
