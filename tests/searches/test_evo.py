from collections import Counter
from itertools import accumulate
from math import ceil, inf, nan, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.config.searches import EvoConfig
from shoal.core.budget import CountBudget
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask, Site
from shoal.core.space import SearchSpace
from shoal.searches.base import Contest, Problem
from shoal.searches.evo import evo, mutant
from shoal.testing.landscapes import Additive, Landscape, Pairwise
from shoal.testing.searches import SearchConformance, no_neighbours, solve
from shoal.testing.signals import LandscapeSignals


class TestEvoWithRoomForAllMasks(SearchConformance):
    pairwise_optimum = True
    first_of_ties = False

    @pytest.fixture
    def config(self) -> EvoConfig:
        return EvoConfig(offspring=8, initial=8, generations=40)


class TestEvo(SearchConformance):
    # It looks at less than all masks here, and starts from random ones.
    separable_optimum = False
    first_of_ties = False

    @pytest.fixture
    def config(self) -> EvoConfig:
        return EvoConfig(offspring=2, initial=8, generations=6)


def batches(config: EvoConfig, landscape: Landscape, k: int, seed: int = 0) -> list[list[Mask]]:
    """The initial pool and the generations."""
    return solve(config, landscape, k=k, seed=seed).evaluator.asked[1:-1]


def distance(one: Mask, other: Mask) -> int:
    """How many units the other removes instead."""
    return len(one.removed - other.removed)


@given(st.integers(0, 999), st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_asks_for_each_mask_once(seed: int, k: int, offspring: int, initial: int) -> None:
    config = EvoConfig(offspring=offspring, initial=initial, generations=5)
    asked = batches(config, Pairwise.random(10, seed), k, seed)
    masks = [mask for batch in asked for mask in batch]
    assert len(masks) == len(set(masks)) <= initial + 5 * offspring
    assert {mask.num_blocks for mask in masks} == {k}


@given(st.integers(0, 999), st.integers(2, 8), st.integers(1, 4), st.booleans())
def test_mutants_are_those_of_the_best_so_far(seed: int, k: int, swaps: int, flat: bool) -> None:
    config = EvoConfig(offspring=3, initial=4, generations=6, max_swaps=swaps)
    landscape = Additive.flat(10) if flat else Pairwise.random(10, seed)
    pool, *generations = batches(config, landscape, k, seed)

    def loss(mask: Mask) -> float:
        return float(np.mean(landscape.losses(mask)))

    parent = min(pool, key=loss)
    for generation in generations:
        assert all(1 <= distance(parent, mask) <= swaps for mask in generation)
        best = min(generation, key=loss)
        # Where they tie, the mutant goes on.
        parent = best if loss(best) <= loss(parent) else parent
    assert parent == solve(config, landscape, k=k, seed=seed).mask


@given(st.integers(0, 999))
def test_the_loss_of_the_parent_never_rises(seed: int) -> None:
    landscape = Pairwise.random(16, seed)
    losses = [
        solve(EvoConfig(offspring=4, initial=4, generations=g), landscape, k=5).outcome.best.mean
        for g in range(5)
    ]
    assert losses == list(accumulate(losses, min))


@pytest.mark.parametrize(("depth", "k"), [(16, 5), (16, 4), (20, 3)])
def test_generations_by_default(depth: int, k: int) -> None:
    asked = batches(EvoConfig(offspring=4), Pairwise.random(depth), k)
    assert len(asked) == 1 + ceil(k * (depth - k) / 1.5)
    assert [len(masks) for masks in asked] == [64] + [4] * (len(asked) - 1)


@pytest.mark.parametrize("generations", [0, 1, 7])
def test_generations_as_asked(generations: int) -> None:
    config = EvoConfig(offspring=4, initial=9, generations=generations)
    asked = batches(config, Pairwise.random(16), 5)
    assert [len(masks) for masks in asked] == [9] + [4] * generations


def test_ends_when_all_masks_are_known() -> None:
    asked = batches(EvoConfig(offspring=16, initial=16, generations=10_000), Pairwise.random(8), 3)
    assert [len(masks) for masks in asked] == [16, 16, 16, 8]


def test_ends_when_no_mutant_is_valid() -> None:
    # Of 0, 1, 2 and 3 only {0, 1} and {2, 3} may go, two swaps apart.
    space = SearchSpace.of_blocks(4, constraint=lambda m: m.blocks in {(0, 1), (2, 3)})
    config = EvoConfig(initial=1, max_swaps=1, generations=10_000)
    solved = solve(config, Additive.random(4), k=2, space=space)
    assert [len(masks) for masks in solved.evaluator.asked[1:-1]] == [1]


def test_each_generation_is_a_contest_with_one_winner_and_the_parent_takes_part() -> None:
    space = SearchSpace.of_blocks(12)
    signals = LandscapeSignals(Additive.flat(12), space)
    problem = Problem(space, CountBudget(4), np.random.default_rng(0), signals)
    run = evo(problem, EvoConfig(offspring=5, initial=6, generations=2))
    pool = next(run)
    assert isinstance(pool, Contest)
    assert (len(pool), pool.winners) == (6, 1)
    parent = pool[4]
    generation = run.send([Evaluation(m, (), float(m != parent), nan) for m in pool])
    for last in (False, True):
        assert isinstance(generation, Contest)
        assert (len(generation), generation.winners) == (5, 1)
        assert all(1 <= distance(parent, mask) <= 3 for mask in generation)
        # The first was dropped with the lowest mean so far; all others are worse than the parent.
        losses = [-1.0, 1.0, inf, nan, 2.0]
        judged = [
            Evaluation(m, (), x, nan, x >= 0) for m, x in zip(generation, losses, strict=True)
        ]
        if not last:
            generation = run.send(judged)
    with pytest.raises(StopIteration) as stop:
        run.send(judged)
    assert stop.value.value == parent


@pytest.mark.parametrize(("limit", "k"), [(1, 10), (3, 10), (4, 10), (3, 2), (5, 29), (3, 1)])
def test_a_mutant_is_the_lesser_of_two_uniform_numbers_of_swaps_away(limit: int, k: int) -> None:
    space, rng, draws = SearchSpace.of_blocks(30), np.random.default_rng(0), 4000
    parent = space.sample(rng, k)
    mutants = [mutant(space, rng, parent, limit) for _ in range(draws)]
    counts = Counter(distance(parent, m) for m in mutants if m is not None)
    room = min(limit, k, 30 - k)
    wanted: Counter[int] = Counter()
    for u in range(1, limit + 1):
        for v in range(1, limit + 1):
            wanted[min(u, v, room)] += 1
    assert sum(counts.values()) == draws
    for swaps, ways in wanted.items():
        p = ways / limit**2
        assert abs(counts[swaps] / draws - p) <= 4 * sqrt(p * (1 - p) / draws)
    assert {m.num_blocks for m in mutants if m is not None} == {k}


def test_every_unit_is_swapped_alike() -> None:
    space, rng, draws = SearchSpace.of_blocks(9), np.random.default_rng(0), 9000
    parent = Mask.of(9, [0, 4, 8])
    moved: Counter[Site] = Counter()
    for _ in range(draws):
        mask = mutant(space, rng, parent, 1)
        assert mask is not None
        moved.update(mask.removed ^ parent.removed)
    for site in map(Site, range(9)):
        p = 1 / 3 if site in parent.removed else 1 / 6
        assert abs(moved[site] / draws - p) < 4 * sqrt(p * (1 - p) / draws)


def test_a_mutant_that_is_not_valid_is_none() -> None:
    space = SearchSpace.of_blocks(6, constraint=no_neighbours)
    rng = np.random.default_rng(0)
    drawn = [mutant(space, rng, Mask.of(6, [0, 2, 4]), 1) for _ in range(200)]
    assert {m.blocks for m in drawn if m is not None} == {(0, 2, 5)}
    assert None in drawn


@settings(max_examples=20)
@given(st.integers(0, 99), st.integers(1, 4))
def test_all_sets_satisfy_the_constraint(seed: int, k: int) -> None:
    space = SearchSpace.of_blocks(8, constraint=no_neighbours)
    config = EvoConfig(offspring=3, initial=3, generations=4)
    solved = solve(config, Pairwise.random(8, seed), k=k, seed=seed, space=space)
    assert all(space.is_valid(mask) for masks in solved.evaluator.asked for mask in masks)


def test_finds_the_optimum_of_a_separable_landscape_with_the_defaults() -> None:
    landscape = Additive.random(16, 3)
    solved = solve(EvoConfig(), landscape, k=4)
    costs = np.mean(landscape.costs, axis=0)
    assert solved.mask == Mask.of(16, np.argsort(costs)[:4].tolist())
    assert solved.outcome.evaluations < SearchSpace.of_blocks(16).size(4)
