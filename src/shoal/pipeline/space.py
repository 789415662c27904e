"""What a request may remove, and how much: first from the config alone, then from the model."""

from collections.abc import Sequence

from transformers import PreTrainedConfig

from shoal.config.run import RunConfig
from shoal.core.amount import Budget
from shoal.core.budget import CountBudget, WeightBudget
from shoal.core.errors import UnsupportedModelError, UsageError
from shoal.core.layout import Layout
from shoal.core.mask import Mask, Site
from shoal.core.space import Constraint, SearchSpace
from shoal.core.units import NOUNS, Granularity, plural, units_of_granularity
from shoal.engine.prices import parameter_prices, time_prices
from shoal.models.branches import BlockBranches
from shoal.models.dense import DenseModel
from shoal.models.discover import depth_of
from shoal.models.skeleton import empty_model
from shoal.surgery.config import check_prunable
from shoal.surgery.fields import per_layer_fields
from shoal.surgery.fusing import can_fuse


class Writable:
    """Whether a mask leaves a model that can be written; remembers its answers.

    Args:
        hf_config: The dense model's config.
        fused: Whether what is left of neighbouring blocks must be fused.
    """

    def __init__(self, hf_config: PreTrainedConfig, *, fused: bool = True) -> None:
        self._config, self._fused = hf_config, fused
        self._reasons: dict[Mask, str | None] = {}

    def why_not(self, mask: Mask) -> str | None:
        """The reason why a mask cannot be written, or None."""
        if mask not in self._reasons:
            self._reasons[mask] = self._reason(mask)
        return self._reasons[mask]

    def _reason(self, mask: Mask) -> str | None:
        # A branch that is zeroed stays in its block, so it asks less of the config than fusing.
        ways = [True] if self._fused or mask.whole_blocks_only else [True, False]
        reason = None
        for fuse in ways:
            try:
                check_prunable(self._config, Layout.of(mask, fuse=fuse))
            except UnsupportedModelError as error:
                reason = str(error)
            else:
                return None
        return reason

    def __call__(self, mask: Mask) -> bool:
        """Whether the mask can be written."""
        return self.why_not(mask) is None


def search_space(
    hf_config: PreTrainedConfig,
    config: RunConfig,
    branches: Sequence[BlockBranches] | None = None,
) -> SearchSpace:
    """The units that may be removed from a model.

    Args:
        hf_config: The model's config.
        config: The options.
        branches: What the blocks are made of, once that is known; until then any block is taken to
            have an attention and an MLP that can be fused with others.

    Raises:
        UsageError: If a protected block does not exist, or the granularity leaves no unit.
        UnsupportedModelError: If no unit can be removed, with the reason for the first.
    """
    granularity = granularity_of(config, branches)
    half = granularity is Granularity.HALF or config.fusable
    units = units_of_granularity(
        granularity,
        depth_of(hf_config),
        config.protect,
        fusable=config.fusable,
        can_fuse=lambda a, m: branches is None or can_fuse(branches, a, m),
    )
    if branches is not None and granularity is not Granularity.BLOCK:
        parts = {u for u in units if any(s.part != "block" for s in u)}
        whole = {s.layer for u in parts for s in u if not branches[s.layer].paired}
        units = tuple(u for u in units if u not in parts or all(s.layer not in whole for s in u))
    writable = Writable(hf_config, fused=half)
    rule = _rule(hf_config, units, writable)
    pairs = any(len(unit) == 2 for unit in units)
    noun = NOUNS[Granularity.HALF if pairs else granularity]
    return SearchSpace(depth_of(hf_config), units, rule, noun)


def granularity_of(
    config: RunConfig, branches: Sequence[BlockBranches] | None = None
) -> Granularity:
    """What one unit is; `auto` stands for half steps where they exist, else for blocks."""
    if config.granularity != "auto":
        return Granularity(config.granularity)
    if config.search.blocks_only or branches is None:
        return Granularity.BLOCK
    apart = any(can_fuse(branches, i, i + 1) for i in range(len(branches) - 1))
    return Granularity.HALF if apart else Granularity.BLOCK


def _rule(
    hf_config: PreTrainedConfig, units: Sequence[frozenset[Site]], writable: Writable
) -> Constraint | None:
    dense = Mask.dense(depth_of(hf_config))
    reasons = [writable.why_not(dense.without(unit)) for unit in units]
    if reasons and all(reasons):
        raise UnsupportedModelError(f"nothing of this model can be removed: {reasons[0]}")
    # Where nothing in the config depends on the blocks, single masks speak for all.
    return writable if any(reasons) or per_layer_fields(hf_config) else None


def count_budget(config: RunConfig, space: SearchSpace) -> CountBudget:
    """How many units a search removes; the most it may, where it decides itself.

    Raises:
        UsageError: If the number is not possible.
    """
    kinds = {site.part for unit in space.units for site in unit}
    total = 2 * space.depth if space.of_sublayers and len(kinds) == 2 else space.depth
    if config.remove is None and not config.search.fixed_count:
        return CountBudget(min(total - 1, total - len(set(config.protect)) * total // space.depth))
    return CountBudget(config.num_removed(total, space.noun))


def provisional_budget(
    hf_config: PreTrainedConfig, config: RunConfig, space: SearchSpace
) -> Budget:
    """A budget for the forecast before the model is loaded, as if all sub-layers weighed alike."""
    if not config.weighs:
        return count_budget(config, space)
    share = config.share_removed(_parameters(hf_config)) or 0.0
    # Whether so much can go is known once the model is loaded.
    return WeightBudget((1.0,) * (2 * space.depth), min(share, 0.5) * len(space.units))


def weight_budget(config: RunConfig, dense: DenseModel, batch_tokens: int) -> WeightBudget | None:
    """A budget in parameters or seconds, where one was asked for; measures the model's blocks.

    Raises:
        UsageError: If the amount is nothing, or more than the model has.
    """
    if config.remove_params is not None:
        prices = parameter_prices(dense)
        share = config.share_removed(prices.total) or 0.0
        return WeightBudget(prices.by_place, share * prices.total)
    if config.remove_time is not None:
        prices = time_prices(dense, batch_tokens)
        share = config.share_removed(1.0) or 0.0
        return WeightBudget(prices.by_place, share * prices.total, "seconds")
    return None


def described(budget: Budget, space: SearchSpace) -> str:
    """A budget as people say it."""
    if isinstance(budget, CountBudget):
        total = "" if space.overlapping else f" of {len(space.units)}"
        return f"{budget.k}{total} {space.noun if budget.k == 1 else plural(space.noun)}"
    if isinstance(budget, WeightBudget) and budget.what == "seconds":
        return f"{1000 * budget.target:.3g} ms of a forward pass"
    return str(budget)


def check_amount(config: RunConfig) -> None:
    """Refuse amounts that contradict each other or the granularity.

    Raises:
        UsageError: If they do.
    """
    given = [
        name
        for name in ("remove", "remove_params", "remove_time")
        if getattr(config, name) is not None
    ]
    if len(given) > 1:
        flags = " and ".join("--" + name.replace("_", "-") for name in given)
        raise UsageError(f"{flags} say twice how much to remove. Leave one out.")
    if config.granularity == "mixed" and "remove" in given:
        raise UsageError(
            "an attention and an MLP weigh differently, so with --granularity mixed say how much "
            "to remove with --remove-params 20% or --remove-time 20%. To count sub-layers, use "
            "--granularity attn+mlp."
        )
    if config.search.blocks_only and config.granularity not in ("auto", "block"):
        raise UsageError(
            f"this form of {config.search.name} works on windows of whole blocks, not on "
            f"--granularity {config.granularity}. Use --granularity block, or another search."
        )


def _parameters(hf_config: PreTrainedConfig) -> float:
    return float(sum(p.numel() for p in empty_model(hf_config).parameters()))
