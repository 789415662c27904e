"""Options of the searches; the classes name their implementations and are the registry."""

from typing import ClassVar, Literal, Self

from pydantic import Field

from shoal.config.base import Named, registry

Rank = Literal[
    "loss",
    "block_influence",
    "angular",
    "relative_magnitude",
    "norm_ratio",
    "taylor",
    "magnitude",
]
"""What units are ranked by: the objective's loss without the unit, or a state score."""


class SearchConfig(Named):
    """Options of a search.

    Attributes:
        fixed_count: Whether the search removes exactly k units; else k is the most it may remove,
            and may be left open.
    """

    fixed_count: ClassVar[bool] = True

    @property
    def blocks_only(self) -> bool:
        """Whether the search works on windows of whole blocks and on nothing else."""
        return False

    def rehearsal(self) -> Self:
        """Options under which the search asks for as many masks with less work of its own."""
        return self


class OneShotConfig(SearchConfig):
    """Remove the k units that cost least one by one."""

    implementation: ClassVar[str] = "shoal.searches.one_shot:one_shot"
    summary: ClassVar[str] = "rank units one by one; N evaluations, or one pass for a state score"
    name: Literal["one_shot"] = "one_shot"
    rank: Rank = Field("loss", description="loss of the single removal, or a state score")

    @property
    def blocks_only(self) -> bool:
        """Windows are ranked by the angular distance."""
        return self.rank == "angular"


class GreedyConfig(SearchConfig):
    """Remove one unit at a time, the least harmful first."""

    implementation: ClassVar[str] = "shoal.searches.greedy:greedy"
    summary: ClassVar[str] = "k rounds, each removes the least harmful unit; about N k evaluations"
    name: Literal["greedy"] = "greedy"


class BeamConfig(SearchConfig):
    """Greedy deletion that keeps several sets per depth."""

    implementation: ClassVar[str] = "shoal.searches.beam:beam"
    summary: ClassVar[str] = "greedy with the best few sets kept; about width N k evaluations"
    name: Literal["beam"] = "beam"
    width: int = Field(5, ge=1, description="sets kept per depth; 1 is greedy")


class GeneticConfig(SearchConfig):
    """An elitist genetic algorithm whose draws favour units that are cheap alone."""

    implementation: ClassVar[str] = "shoal.searches.genetic:genetic"
    summary: ClassVar[str] = "evolves a population of sets, led by single-removal losses"
    name: Literal["genetic"] = "genetic"
    population: int = Field(16, ge=2, description="sets in a generation")
    elitism: float = Field(0.2, ge=0, le=1, description="share of a generation that survives")
    mutation: float = Field(0.15, ge=0, le=1, description="chance that a removed unit is swapped")
    generations: int = Field(10, ge=0, description="generations after the first")
    tournament: int = Field(3, ge=1, description="candidates per choice of a parent")


class BayesConfig(SearchConfig):
    """Bayesian optimisation with an additive prior mean."""

    implementation: ClassVar[str] = "shoal.searches.bayes:bayes"
    summary: ClassVar[str] = "Gaussian process over sets, expected improvement"
    name: Literal["bayes"] = "bayes"
    trials: int = Field(200, ge=1, description="sets to evaluate, the initial ones included")
    initial: int = Field(10, ge=1, description="sets drawn before the surrogate is used")
    pool: int = Field(512, ge=1, description="drawn sets among which each trial chooses")

    def rehearsal(self) -> Self:
        """With a smaller pool."""
        return self.model_copy(update={"pool": 8})


class CboConfig(SearchConfig):
    """A quadratic model of the loss, solved exactly for k units."""

    implementation: ClassVar[str] = "shoal.searches.cbo:cbo"
    summary: ClassVar[str] = "quadratic model from gradients or pairs; lowest states re-evaluated"
    name: Literal["cbo"] = "cbo"
    form: Literal["pairwise", "gradient"] = Field(
        "pairwise", description="model from single and pair losses, or from per-example gradients"
    )
    first_order: bool = Field(False, description="keep the gradient term (gradient form)")
    states: int = Field(20, ge=1, description="lowest states whose true loss is evaluated")
    certify: bool = Field(True, description="prove the lowest state optimal by milp where it can")
    certify_seconds: float = Field(20.0, gt=0, description="time limit of the proof")
    restarts: int = Field(32, ge=1, description="annealing runs")
    batch: int = Field(64, ge=1, description="masks per batch; a kill loses at most one batch")

    def rehearsal(self) -> Self:
        """Without the proof."""
        return self.model_copy(update={"certify": False})


class FastBlockSelectConfig(SearchConfig):
    """Swap contiguous runs of the removed set for better windows until nothing changes."""

    implementation: ClassVar[str] = "shoal.searches.fast_block_select:fast_block_select"
    summary: ClassVar[str] = "one-shot, then whole windows exchanged by dynamic programming"
    name: Literal["fast_block_select"] = "fast_block_select"
    rank: Rank = Field("loss", description="loss of the removal, or a state score")
    windows: int = Field(10, ge=1, description="windows measured per length and round")
    rounds: int = Field(10, ge=1, description="most rounds")

    @property
    def blocks_only(self) -> bool:
        """It exchanges windows of blocks."""
        return True


class TaleConfig(SearchConfig):
    """Greedy removal while the loss stays within epsilon; the number of units follows."""

    implementation: ClassVar[str] = "shoal.searches.tale:tale"
    summary: ClassVar[str] = "greedy while accuracy stays within epsilon of the dense model's"
    fixed_count: ClassVar[bool] = False
    name: Literal["tale"] = "tale"
    epsilon: float = Field(0.08, ge=0, description="loss that may be lost; inf never stops")
    floor: Literal["fixed", "drifting"] = Field(
        "fixed", description="epsilon below the dense model, or below the current one"
    )
    result: Literal["best", "bsba", "last"] = Field(
        "best",
        description="best on the path, deepest no worse than dense (bsba), or the last accepted",
    )


class EvoConfig(SearchConfig):
    """EvoPress: one parent, mutated by swaps; the best offspring takes its place."""

    implementation: ClassVar[str] = "shoal.searches.evo:evo"
    summary: ClassVar[str] = "(1+lambda) evolution by level switches (EvoPress)"
    name: Literal["evo"] = "evo"
    offspring: int = Field(32, ge=1, description="mutants per generation")
    initial: int = Field(64, ge=1, description="random sets from which the first parent is chosen")
    generations: int | None = Field(
        None, ge=0, description="generations; k (N - k) / 1.5 by default"
    )
    max_swaps: int = Field(3, ge=1, description="swaps per mutant are min(U, U) with U up to this")


class BruteForceConfig(SearchConfig):
    """Evaluate every mask."""

    implementation: ClassVar[str] = "shoal.searches.brute_force:brute_force"
    summary: ClassVar[str] = "every mask of k units; the exact optimum of small problems"
    name: Literal["brute_force"] = "brute_force"
    max_masks: int = Field(20_000, ge=1, description="refuse problems with more masks than this")
    batch: int = Field(64, ge=1, description="masks per batch; a kill loses at most one batch")


class RandomConfig(SearchConfig):
    """Evaluate masks drawn uniformly."""

    implementation: ClassVar[str] = "shoal.searches.random_search:random_search"
    summary: ClassVar[str] = "the best of some random masks; the baseline to beat"
    name: Literal["random"] = "random"
    samples: int = Field(200, ge=1, description="masks to draw")
    batch: int = Field(64, ge=1, description="masks per batch; a kill loses at most one batch")


SEARCHES = registry(
    GreedyConfig,
    OneShotConfig,
    BeamConfig,
    GeneticConfig,
    BayesConfig,
    CboConfig,
    FastBlockSelectConfig,
    TaleConfig,
    EvoConfig,
    RandomConfig,
    BruteForceConfig,
)
"""Name -> config class of every search."""
