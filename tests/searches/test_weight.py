"""What searches promise where the budget is a weight."""

from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.config.searches import (
    SEARCHES,
    BayesConfig,
    BeamConfig,
    BruteForceConfig,
    CboConfig,
    GeneticConfig,
    GreedyConfig,
    OneShotConfig,
    RandomConfig,
    SearchConfig,
    TaleConfig,
)
from shoal.core.budget import WeightBudget
from shoal.core.errors import BudgetError, UsageError
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.core.units import Granularity, units_of_granularity
from shoal.engine.forecast import forecast
from shoal.searches.ranking import per_price, top_k
from shoal.testing.landscapes import Sublayers, optimum
from shoal.testing.searches_by_unit import CASES, DEPTH, searched
from shoal.testing.solving import Solved, solve


def space_of(depth: int, kind: Granularity = Granularity.BOTH) -> SearchSpace:
    return SearchSpace(depth, units_of_granularity(kind, depth))


def budget_of(depth: int, share: float, seed: int = 0) -> WeightBudget:
    """Attention about 1, MLP about 2.5, uneven."""
    rng = np.random.default_rng([depth, seed])
    prices = (rng.integers(7, 10, (depth, 2)) / 8 * [1, 2.5]).ravel()
    return WeightBudget(tuple(prices.tolist()), share * float(prices.sum()))


def run(config: SearchConfig, landscape: Sublayers, budget: WeightBudget, seed: int = 0) -> Solved:
    return solve(config, landscape, k=budget, space=space_of(landscape.depth), seed=seed)


@given(st.floats(-10, 10), st.floats(0.1, 10), st.floats(0.1, 10))
def test_the_dearer_of_two_equal_changes_ranks_first(
    increase: float, price: float, other: float
) -> None:
    cheap, dear = sorted((price, other))
    assert per_price(increase, dear) <= per_price(increase, cheap)
    assert per_price(2 * abs(increase), 2 * price) == pytest.approx(per_price(abs(increase), price))
    assert (per_price(increase, price) <= 0) == (increase <= 0)


def test_what_weighs_nothing_or_has_no_loss_ranks_last() -> None:
    assert per_price(0.1, 0.0) == per_price(inf, 1.0) == inf
    assert per_price(nan, 1.0) == inf


def test_units_are_taken_by_their_score_per_price_and_spared_from_the_last() -> None:
    space = space_of(3)
    budget = WeightBudget((1.0, 3.0) * 3, 4.0)
    scores = [0.5, 0.6, 0.9, 9.0, 0.7, 9.0]
    # 0.mlp at 0.2, 0.attn at 0.5: together they meet the target.
    assert top_k(space, scores, budget) == Mask.parse("-[0]", 3)
    # 1.attn and 2.attn gain, and come first; with 0.mlp the first of them alone would do.
    scores = [0.5, 0.6, -0.1, 9.0, -0.2, 9.0]
    assert top_k(space, scores, budget) == Mask.parse("-[0.mlp,2.attn]", 3)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("config", [GreedyConfig(), OneShotConfig(), BeamConfig()])
def test_within_the_cost_of_one_unit_of_the_optimum_where_removals_add_up(
    config: SearchConfig, seed: int
) -> None:
    """The usual bound of knapsack heuristics: what fits by rate costs less than the optimum."""
    rng = np.random.default_rng(seed)
    costs = (rng.integers(1, 1024, (6, 2)) * [1, 2] / 1024).ravel()
    landscape, budget = Sublayers((tuple(costs.tolist()),)), budget_of(6, 0.35, seed)
    best = optimum(landscape, space_of(6), budget).mean
    found = run(config, landscape, budget).outcome.best.mean
    assert best <= found <= best + costs.max()
    assert found <= best + 0.25 * (best - 1.0) or isinstance(config, OneShotConfig)


def test_a_heavy_unit_is_not_taken_for_a_small_rest() -> None:
    prices = (1.0, 1.0, 1.0, 100.0)
    landscape, budget = Sublayers(((0.5, 0.5, 0.625, 16.0),)), WeightBudget(prices, 3.0)
    assert run(GreedyConfig(), landscape, budget).mask == Mask.parse("-[0,1.attn]", 2)


@pytest.mark.parametrize("seed", range(3))
def test_what_greedy_took_in_vain_it_puts_back(seed: int) -> None:
    landscape = Sublayers.random(7, seed, strength=0.5)
    budget, space = budget_of(7, 0.3, seed), space_of(7)
    solved = run(GreedyConfig(), landscape, budget)
    assert budget.is_answer(space, solved.mask)
    # A width of one is greedy deletion as long as the loss rises.
    rising = Sublayers(tuple(tuple(abs(c) + 1 for c in row) for row in landscape.costs))
    one = run(BeamConfig(width=1), rising, budget)
    greedy = run(GreedyConfig(), rising, budget)
    assert one.evaluator.asked == greedy.evaluator.asked
    assert (
        run(BeamConfig(), landscape, budget).outcome.best.mean
        >= optimum(landscape, space, budget).mean
    )


@pytest.mark.parametrize(
    "config",
    [
        BeamConfig(),
        GeneticConfig(),
        BayesConfig(trials=40, pool=128),
        CboConfig(states=10, certify=False, restarts=8),
    ],
    ids=lambda config: config.name,
)
def test_beats_random_draws_where_sublayers_interact(config: SearchConfig) -> None:
    found, drawn = [], []
    for seed in range(2):
        landscape, budget = Sublayers.random(9, seed, strength=0.2), budget_of(9, 0.25, seed)
        found.append(run(config, landscape, budget, seed).outcome.best.mean)
        drawn.append(run(RandomConfig(samples=100), landscape, budget, seed).outcome.best.mean)
    assert sum(found) < sum(drawn)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
def test_tale_stays_within_the_target(share: float) -> None:
    landscape, budget, space = Sublayers.random(6, 1), budget_of(6, share), space_of(6)
    config = TaleConfig(epsilon=inf, result="last")
    solved = run(config, landscape, budget)
    assert all(budget.within(space, mask) for mask in solved.asked)
    left = [m for m in space.extensions(solved.mask) if budget.within(space, m)]
    assert not left
    assert solved.outcome.details["stopped_because"] == "cap"


def test_tale_goes_on_while_any_removal_is_within_its_floor() -> None:
    # The MLP of block 0 is the best per price and too much at once; two attentions are not.
    landscape = Sublayers(((0.25, 0.5, 0.25, 8.0, 8.0, 8.0),))
    budget = WeightBudget((1.0, 4.0) * 3, 7.0)
    solved = run(TaleConfig(epsilon=0.375, result="last", floor="fixed"), landscape, budget)
    assert solved.mask == Mask.parse("-[0.attn]", 3)
    assert solved.outcome.details["stopped_because"] == "floor"


def test_tale_needs_no_target_that_can_be_met() -> None:
    landscape, budget = Sublayers.random(4, 1), WeightBudget((1.0, 2.5) * 4, 1000.0)
    solved = run(TaleConfig(epsilon=inf, result="last"), landscape, budget)
    assert len(solved.mask.places) == 7


def test_brute_force_counts_before_any_work() -> None:
    budget, space = budget_of(12, 0.4), space_of(12)
    with pytest.raises(BudgetError, match=r"at least 501 masks, more than search.max_masks = 500"):
        forecast(BruteForceConfig(max_masks=500), space, budget, 0)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_target_out_of_reach_is_refused(name: str) -> None:
    config, budget = SEARCHES[name](), WeightBudget((1.0, 2.5) * 5, 17.0)
    if not config.fixed_count:
        pytest.skip("for this search the target is the most")
    with pytest.raises(UsageError, match="cannot remove 17 parameters"):
        solve(config, Sublayers.random(5), k=budget, space=space_of(5))
    with pytest.raises(UsageError, match="cannot remove 17 parameters"):
        forecast(config, space_of(5), budget, 0)


@pytest.mark.parametrize(
    "config",
    [GreedyConfig(), OneShotConfig(), BeamConfig(), CboConfig(certify=False)],
    ids=lambda config: config.name,
)
def test_the_forecast_is_of_the_right_size(config: SearchConfig) -> None:
    case = CASES["weight"]
    expected = forecast(config, case.space(), case.budget, 0).evaluations
    counts = [
        len(searched(solve(config, Sublayers.random(DEPTH, s), k=case.budget, space=case.space())))
        for s in range(4)
    ]
    assert 0.5 * min(counts) <= expected <= 2 * max(counts)


@pytest.mark.parametrize("kind", [Granularity.HALF, Granularity.BOTH])
def test_bayes_proposes_enough_answers_beyond_enumeration(kind: Granularity) -> None:
    depth = 14
    landscape, space = Sublayers.random(depth, 0, strength=0.1), space_of(depth, kind)
    for budget in (budget_of(depth, 0.3), 4):
        solved = solve(BayesConfig(trials=20, pool=40), landscape, k=budget, space=space)
        assert solved.outcome.evaluations == len(space.units) + 20


@pytest.mark.parametrize("k", [6, 7])
def test_half_steps_do_not_lead_greedy_into_a_dead_end(k: int) -> None:
    """Half steps are cheap here, and three of them leave no room for the blocks between."""
    depth = 8
    space = space_of(depth, Granularity.HALF)
    costs = tuple(2.0 if place in (0, 3, 6, 9, 12) else 0.5 for place in range(2 * depth))
    for config in (GreedyConfig(), BeamConfig()):
        solved = solve(config, Sublayers((costs,)), k=k, space=space)
        assert len(space.removed_units(solved.mask)) == k
