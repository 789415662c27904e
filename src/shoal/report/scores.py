"""Scores of the blocks of a model as a typed record."""

from math import inf, isnan
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from shoal.core.plan import ModelRef


class ScoreReport(BaseModel):
    """What the blocks of a model score on some data; the lowest is needed least."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    schema_version: Literal[1] = 1
    model: ModelRef
    depth: int
    dtype: str
    device: str
    objective: str = Field(description="objective expression, e.g. nll:wikitext2")
    examples: int
    data: dict[str, Any] = Field(description="what the data are and how they were tokenised")
    scores: dict[str, tuple[float, ...]] = Field(description="score -> value of each block")
    angular_windows: dict[int, tuple[float, ...]] = Field(
        default_factory=dict,
        description="n -> angular distance over the n blocks from each start on",
    )

    def order(self, name: str) -> list[int]:
        """Blocks by a score, the lowest first; ties by index, and what is no number last."""
        keys = [inf if isnan(v) else v for v in self.scores[name]]
        return sorted(range(self.depth), key=keys.__getitem__)

    def ranks(self, name: str) -> list[int]:
        """Rank of each block by a score; 1 is the lowest."""
        ranks = [0] * self.depth
        for rank, block in enumerate(self.order(name), 1):
            ranks[block] = rank
        return ranks

    def best_window(self, length: int) -> range:
        """The window of so many blocks over which the state turns least; the first of equals."""
        keys = [inf if isnan(v) else v for v in self.angular_windows[length]]
        start = min(range(len(keys)), key=keys.__getitem__)
        return range(start, start + length)
