"""Options of the searches; the classes name their implementations and are the registry."""

from typing import ClassVar, Literal

from pydantic import Field

from shoal.config.base import Named, registry


class OneShotConfig(Named):
    """Remove the k units whose single removal costs least."""

    implementation: ClassVar[str] = "shoal.searches.one_shot:one_shot"
    summary: ClassVar[str] = "rank units by their single removal; N evaluations"
    name: Literal["one_shot"] = "one_shot"


class GreedyConfig(Named):
    """Remove one unit at a time, the least harmful first."""

    implementation: ClassVar[str] = "shoal.searches.greedy:greedy"
    summary: ClassVar[str] = "k rounds, each removes the least harmful unit; about N k evaluations"
    name: Literal["greedy"] = "greedy"


class BruteForceConfig(Named):
    """Evaluate every mask."""

    implementation: ClassVar[str] = "shoal.searches.brute_force:brute_force"
    summary: ClassVar[str] = "every mask of k units; the exact optimum of small problems"
    name: Literal["brute_force"] = "brute_force"
    max_masks: int = Field(20_000, ge=1, description="refuse problems with more masks than this")
    batch: int = Field(64, ge=1, description="masks per batch; a kill loses at most one batch")


class RandomConfig(Named):
    """Evaluate masks drawn uniformly."""

    implementation: ClassVar[str] = "shoal.searches.random_search:random_search"
    summary: ClassVar[str] = "the best of some random masks; the baseline to beat"
    name: Literal["random"] = "random"
    samples: int = Field(200, ge=1, description="masks to draw")
    batch: int = Field(64, ge=1, description="masks per batch; a kill loses at most one batch")


SEARCHES = registry(GreedyConfig, OneShotConfig, BruteForceConfig, RandomConfig)
"""Name -> config class of every search."""
