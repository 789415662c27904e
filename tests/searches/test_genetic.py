from itertools import pairwise
from math import ceil
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.config.searches import GeneticConfig, OneShotConfig
from shoal.core.budget import CountBudget
from shoal.core.errors import UsageError
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.engine.driver import Limits, drive
from shoal.searches.genetic import Breeder
from shoal.testing.landscapes import Additive, LandscapeEvaluator, Pairwise
from shoal.testing.searches import SearchConformance, Solved, no_neighbours, solve
from shoal.testing.signals import LandscapeSignals


class TestGenetic(SearchConformance):
    @pytest.fixture
    def config(self) -> GeneticConfig:
        return GeneticConfig()


class TestGeneticWithoutGenerations(SearchConformance):
    @pytest.fixture
    def config(self) -> GeneticConfig:
        return GeneticConfig(population=2, generations=0)


class TestGeneticWithRoomForAllMasks(SearchConformance):
    pairwise_optimum = True

    @pytest.fixture
    def config(self) -> GeneticConfig:
        return GeneticConfig(generations=12, mutation=0.7)


def batches(solved: Solved) -> list[list[Mask]]:
    """What the search asked for, without the driver's own questions."""
    return solved.evaluator.asked[1:-1]


def means(solved: Solved, masks: list[Mask]) -> list[float]:
    return [e.mean for e in solved.evaluator.evaluate(masks)]


def breeder(
    *,
    depth: int = 10,
    k: int = 4,
    weights: Any = None,
    space: SearchSpace | None = None,
    **config: Any,
) -> Breeder:
    prior = np.full(depth, 1 / depth) if weights is None else np.asarray(weights)
    space = space or SearchSpace.of_blocks(depth)
    return Breeder(space, CountBudget(k), np.random.default_rng(0), prior, GeneticConfig(**config))


@given(st.integers(0, 999), st.integers(1, 7), st.integers(2, 9))
def test_without_generations_it_is_the_best_of_its_initial_pool(
    seed: int, k: int, population: int
) -> None:
    config = GeneticConfig(population=population, generations=0)
    landscape = Pairwise.random(8, seed)
    solved = solve(config, landscape, k=k, seed=seed)
    assert len(batches(solved)) == (1 if k == 1 else 2)
    asked = [m for masks in batches(solved) for m in masks]
    assert asked[:8] == [Mask.of(8, [i]) for i in range(8)]
    pool = [m for m in asked if len(m) == k]
    assert solved.outcome.best.mean == min(means(solved, pool))
    if k > 1:
        assert pool[0] == solve(OneShotConfig(), landscape, k=k).mask
        # Where there are few sets, those that the prior all but rules out may not be drawn.
        assert 2 <= len(pool) <= min(population, SearchSpace.of_blocks(8).size(k))


@given(
    st.integers(0, 999),
    st.integers(1, 11),
    st.integers(2, 12),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(1, 5),
    st.sets(st.integers(0, 11), max_size=2),
)
def test_asks_for_each_mask_once_and_returns_the_best_ever(
    seed: int,
    k: int,
    population: int,
    elitism: float,
    mutation: float,
    tournament: int,
    protect: set[int],
) -> None:
    space = SearchSpace.of_blocks(12, protect)
    k = min(k, len(space.units))
    config = GeneticConfig(
        population=population,
        elitism=elitism,
        mutation=mutation,
        tournament=tournament,
        generations=4,
    )
    solved = solve(config, Pairwise.random(12, seed), k=k, seed=seed, space=space)
    asked = [m for masks in batches(solved) for m in masks]
    assert len(asked) == len(set(asked))
    assert {len(m) for m in asked[len(space.units) :]} <= {k}
    sets = [m for m in asked if len(m) == k]
    assert solved.outcome.best.mean == min(means(solved, sets))
    survivors = max(1, ceil(elitism * population - 1e-9))
    assert len(asked) <= len(space.units) + population + 4 * (population - survivors)


def test_cost_is_the_stated_one() -> None:
    solved = solve(GeneticConfig(), Pairwise.random(32), k=7)
    assert [len(masks) for masks in batches(solved)] == [32, 16] + [12] * 10
    assert solved.outcome.evaluations == 168


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[list[Mask]]:
    """The ranked sets of each generation that has a next one."""
    seen: list[list[Mask]] = []
    inner = Breeder.next_generation

    def spy(self: Breeder, ranked: list[Mask], known: Any) -> list[Mask]:
        seen.append(list(ranked))
        return inner(self, ranked, known)

    monkeypatch.setattr(Breeder, "next_generation", spy)
    return seen


@pytest.mark.parametrize(
    ("elitism", "elites"), [(0.0, 1), (0.2, 4), (0.25, 4), (0.5, 8), (1.0, 16)]
)
def test_the_elites_survive_unchanged(
    elitism: float, elites: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    generations = recorded(monkeypatch)
    solved = solve(GeneticConfig(elitism=elitism), Pairwise.random(16), k=5)
    assert len(generations) == 10
    for before, after in pairwise(generations):
        losses = means(solved, before)
        assert losses == sorted(losses)
        assert set(before[:elites]) <= set(after)
        assert len(set(after)) == len(after) == 16
        assert len(set(after) - set(before)) == 16 - elites


def test_a_share_is_not_rounded_up_for_a_rounding_error() -> None:
    assert 0.07 * 100 > 7
    assert breeder(population=100, elitism=0.07).elites == 7


def test_where_all_masks_are_known_it_ends_without_asking() -> None:
    config = GeneticConfig(population=50, generations=10_000, mutation=0.5)
    solved = solve(config, Pairwise.random(6), k=2)
    assert solved.outcome.evaluations == 6 + 15
    assert len(batches(solved)) < 10


def test_known_masks_fill_up_a_generation_after_the_new_ones() -> None:
    space, landscape = SearchSpace.of_blocks(6), Additive.random(6)
    bred = breeder(depth=6, k=2, population=8, mutation=0.9)
    known = {m: Evaluation.of(m, landscape.losses(m)) for m in space.masks(2)}
    order = sorted(known, key=lambda m: known[m].rank_key)
    ranked, new = order[:8], order[8:10]
    after = bred.next_generation(ranked, {m: e for m, e in known.items() if m not in new})
    assert after[:2] == ranked[:2]
    assert len(after) == len(set(after)) == 8
    assert set(after[2:4]) == set(new)
    assert set(after[4:]) <= set(known)


@given(
    st.sets(st.integers(0, 9), min_size=4, max_size=4),
    st.sets(st.integers(0, 9), min_size=4, max_size=4),
)
def test_crossover_keeps_what_is_common_and_adds_nothing_foreign(
    one: set[int], other: set[int]
) -> None:
    child = set(breeder().crossed(Mask.of(10, one), Mask.of(10, other)).blocks)
    assert len(child) == 4
    assert one & other <= child <= one | other


def test_crossover_draws_by_the_prior() -> None:
    weights = np.full(10, 1e-6)
    weights[[1, 6]] = 0.5
    bred = breeder(weights=weights)
    one, other = Mask.of(10, [0, 1, 2, 3]), Mask.of(10, [0, 5, 6, 3])
    children = [bred.crossed(one, other).blocks for _ in range(100)]
    assert children.count((0, 1, 3, 6)) > 95


def test_where_crossover_cannot_lead_to_a_valid_set_the_first_parent_stands() -> None:
    parents = [Mask.of(10, [0, 1]), Mask.of(10, [2, 3])]
    space = SearchSpace.of_blocks(10, constraint=lambda m: len(m) != 1)
    assert breeder(k=2, space=space).crossed(*parents) == parents[0]


@pytest.mark.parametrize("rate", [0.0, 0.15, 1.0])
def test_mutation_swaps_each_removed_unit_with_its_probability(rate: float) -> None:
    depth, k, draws = 150, 4, 150
    bred = breeder(depth=depth, k=k, mutation=rate)
    mask = Mask.of(depth, range(k))
    swapped = [k - len(bred.mutated(mask).removed & mask.removed) for _ in range(draws)]
    n = k * draws
    # A unit that went out may come back in the same mutation, once in 50 or less.
    assert abs(sum(swapped) / n - rate) <= 4 * (rate * (1 - rate) / n) ** 0.5 + 0.02 * rate


def test_mutation_draws_the_kept_units_by_the_prior() -> None:
    weights = np.full(10, 1e-6)
    weights[7] = 1.0
    bred = breeder(k=1, weights=weights, mutation=1.0)
    children = [bred.mutated(Mask.of(10, [0])).blocks for _ in range(100)]
    assert children.count((7,)) > 95


@given(st.integers(0, 99))
def test_mutation_where_only_one_unit_stays(seed: int) -> None:
    bred = breeder(k=9, mutation=1.0)
    mask = bred.mutated(Mask.of(10, [i for i in range(10) if i != seed % 10]))
    assert mask.num_blocks == 9


def test_a_tournament_of_all_is_won_by_the_best_and_one_of_one_by_anybody() -> None:
    ranked = [Mask.of(10, [i]) for i in range(6)]
    everyone, nobody = breeder(k=1, tournament=9), breeder(k=1, tournament=1)
    assert {everyone.chosen(ranked) for _ in range(50)} == {ranked[0]}
    assert {nobody.chosen(ranked) for _ in range(200)} == set(ranked)


@settings(max_examples=20)
@given(st.integers(0, 99), st.integers(1, 4))
def test_all_sets_satisfy_the_constraint(seed: int, k: int) -> None:
    space = SearchSpace.of_blocks(8, constraint=no_neighbours)
    solved = solve(
        GeneticConfig(generations=3), Pairwise.random(8, seed), k=k, seed=seed, space=space
    )
    assert all(space.is_valid(mask) for masks in batches(solved) for mask in masks)


def test_a_constraint_that_no_ranking_satisfies() -> None:
    # No set can be built unit by unit, the one-shot set included.
    space = SearchSpace.of_blocks(6, constraint=lambda m: len(m) == 3)
    assert solve(GeneticConfig(generations=2), Pairwise.random(6), space=space).mask.num_blocks == 3


def test_evolution_helps() -> None:
    # The mean over landscapes, as no single run must gain.
    gains = []
    for seed in range(8):
        landscape = Pairwise.random(16, seed)
        before, after = (
            solve(GeneticConfig(generations=g), landscape, k=5, seed=seed).outcome.best.mean
            for g in (0, 10)
        )
        assert after <= before
        gains.append(before - after)
    assert np.mean(gains) > 1


def test_a_budget_ends_it_with_the_best_so_far() -> None:
    landscape, space = Pairwise.random(16, 1), SearchSpace.of_blocks(16)
    evaluator = LandscapeEvaluator(landscape)
    signals = LandscapeSignals(landscape, space)
    outcome = drive(GeneticConfig(), space, 5, 0, evaluator, signals, limits=Limits(evaluations=40))
    sets = [m for masks in evaluator.asked for m in masks if len(m) == 5]
    assert outcome.evaluations in (39, 40)
    assert outcome.best.mean == min(e.mean for e in evaluator.evaluate(sets))


def test_no_valid_set_is_reported() -> None:
    space = SearchSpace.of_blocks(6, constraint=lambda m: len(m) < 3)
    with pytest.raises(UsageError, match="no valid mask of 4 units"):
        solve(GeneticConfig(), Additive.random(6), k=4, space=space)
