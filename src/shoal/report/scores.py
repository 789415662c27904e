"""Scores of the blocks of a model, or of its sub-layers, as a typed record."""

from math import inf, isnan
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from shoal.core.plan import ModelRef
from shoal.core.units import Granularity


class ScoreReport(BaseModel):
    """What the units of a model score on some data; the lowest is needed least.

    Units are the blocks, unless they are named.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    schema_version: Literal[1] = 1
    model: ModelRef
    depth: int
    dtype: str
    device: str
    objective: str = Field(description="objective expression, e.g. nll:wikitext2")
    examples: int
    data: dict[str, Any] = Field(description="what the data are and how they were tokenised")
    granularity: Granularity = Field(
        Granularity.BLOCK, description="what one unit is; left out where it is a block"
    )
    units: tuple[str, ...] = Field(
        (), description="names of the units; left out where they are the blocks in order"
    )
    scores: dict[str, tuple[float, ...]] = Field(description="score -> value of each unit")
    angular_windows: dict[int, tuple[float, ...]] = Field(
        default_factory=dict,
        description="n -> angular distance over the n blocks from each start on",
    )

    @model_serializer(mode="wrap")
    def _as_before_for_blocks(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        if not self.units:
            del written["granularity"], written["units"]
        return written

    @property
    def names(self) -> tuple[str, ...]:
        """What the units are called."""
        return self.units or tuple(map(str, range(self.depth)))

    @property
    def marked(self) -> int:
        """How many units are marked as the lowest: a fifth."""
        return max(1, round(len(self.names) / 5))

    def order(self, name: str) -> list[int]:
        """Units by a score, the lowest first; ties by index, and what is no number last."""
        keys = [inf if isnan(v) else v for v in self.scores[name]]
        return sorted(range(len(keys)), key=keys.__getitem__)

    def ranks(self, name: str) -> list[int]:
        """Rank of each unit by a score; 1 is the lowest."""
        ranks = [0] * len(self.names)
        for rank, unit in enumerate(self.order(name), 1):
            ranks[unit] = rank
        return ranks

    def best_window(self, length: int) -> range:
        """The window of so many blocks over which the state turns least; the first of equals."""
        keys = [inf if isnan(v) else v for v in self.angular_windows[length]]
        start = min(range(len(keys)), key=keys.__getitem__)
        return range(start, start + length)
