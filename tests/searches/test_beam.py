from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.config.searches import BeamConfig, GreedyConfig
from shoal.core.budget import CountBudget
from shoal.core.errors import UsageError
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.searches.base import Contest, Problem
from shoal.searches.beam import beam
from shoal.testing.landscapes import Additive, Broken, Landscape, Pairwise, optimum
from shoal.testing.searches import SearchConformance, no_neighbours, solve
from shoal.testing.signals import LandscapeSignals


class TestBeam(SearchConformance):
    deterministic = True

    @pytest.fixture
    def config(self) -> BeamConfig:
        return BeamConfig()


class TestBeamOfWidthOne(SearchConformance):
    deterministic = True

    @pytest.fixture
    def config(self) -> BeamConfig:
        return BeamConfig(width=1)


class TestBeamWithRoomForAllMasks(SearchConformance):
    deterministic = True
    unit_optimum = True
    pairwise_optimum = True

    @pytest.fixture
    def config(self) -> BeamConfig:
        return BeamConfig(width=70)


def landscape_of(seed: int, broken: set[int], coarse: bool) -> Landscape:
    return Broken.at(Pairwise.random(8, seed, strength=0.001 if coarse else 1.0), broken)


problems = given(
    st.integers(0, 999),
    st.integers(1, 4),
    st.sets(st.integers(0, 7), max_size=3),
    st.sets(st.integers(0, 7), max_size=2),
    st.booleans(),
)


@problems
def test_width_one_is_greedy(
    seed: int, k: int, protect: set[int], broken: set[int], coarse: bool
) -> None:
    landscape, space = landscape_of(seed, broken, coarse), SearchSpace.of_blocks(8, protect)
    narrow = solve(BeamConfig(width=1), landscape, k=k, space=space)
    greedy = solve(GreedyConfig(), landscape, k=k, space=space)
    assert narrow.evaluator.asked == greedy.evaluator.asked
    # Two losses that are no number are not equal, so the outcomes are compared as text.
    assert repr(narrow.outcome) == repr(greedy.outcome)


def test_width_one_breaks_ties_as_greedy_does() -> None:
    # Blocks 2 and 5 are equally cheap alone; what goes with each differs.
    landscape = Pairwise(Additive(((1.0, 1.0, 0.0, 1.0, 1.0, 0.0),)), {(2, 5): 4.0, (4, 5): -2.0})
    narrow, greedy = (solve(c, landscape, k=3) for c in (BeamConfig(width=1), GreedyConfig()))
    assert narrow.mask == greedy.mask == Mask.of(6, [0, 1, 2])


@given(st.integers(0, 999), st.integers(1, 7), st.booleans(), st.booleans())
def test_a_width_that_is_never_exceeded_is_brute_force(
    seed: int, k: int, coarse: bool, sparse: bool
) -> None:
    landscape = landscape_of(seed, set(), coarse)
    space = SearchSpace.of_blocks(8, constraint=no_neighbours if sparse else None)
    if sparse:
        k = min(k, 4)
    solved = solve(BeamConfig(width=70), landscape, k=k, space=space)
    assert solved.outcome.best.mean == optimum(landscape, space, k).mean
    for depth, masks in enumerate(solved.evaluator.asked[1:-1], start=1):
        assert Counter(masks) == Counter(space.masks(depth))


def by_hand(landscape: Landscape, width: int, k: int) -> set[frozenset[int]]:
    """The losses decide alone: no two sets of these landscapes tie."""
    kept: set[frozenset[int]] = {frozenset()}
    for depth in range(1, k + 1):
        grown = {s | {i} for s in kept for i in range(landscape.depth) if i not in s}
        order = sorted(grown, key=lambda s: np.mean(landscape.losses(Mask.of(8, s))))
        kept = set(order[: width if depth < k else 1])
    return kept


@given(st.integers(0, 999), st.integers(1, 7), st.integers(1, 6))
def test_equals_the_loop_written_by_hand(seed: int, k: int, width: int) -> None:
    drawn = Pairwise.random(8, seed)
    powers = tuple(c + 2.0 ** -(20 + i) for i, c in enumerate(drawn.additive.costs[0]))
    landscape = Pairwise(Additive((powers,)), drawn.couplings)
    solved = solve(BeamConfig(width=width), landscape, k=k)
    assert {frozenset(solved.mask.blocks)} == by_hand(landscape, width, k)


def test_finds_what_greedy_cannot() -> None:
    # Block 0 is the cheapest alone; 1 and 2 are cheap only together.
    landscape = Pairwise(Additive(((0.0, 0.25, 0.5, 1.0),)), {(1, 2): -0.5, (0, 1): 1.0})
    assert solve(GreedyConfig(), landscape, k=2).mask == Mask.of(4, [0, 2])
    assert solve(BeamConfig(width=2), landscape, k=2).mask == Mask.of(4, [1, 2])


@given(st.integers(0, 999), st.integers(1, 7), st.integers(1, 9))
def test_asks_for_each_mask_once_and_for_no_more_than_stated(seed: int, k: int, width: int) -> None:
    asked = solve(BeamConfig(width=width), Pairwise.random(8, seed), k=k).evaluator.asked[1:-1]
    masks = [mask for batch in asked for mask in batch]
    assert len(asked) == k
    assert len(masks) == len(set(masks)) <= 8 + width * ((k - 1) * 8 - k * (k - 1) // 2)


def test_cost_at_the_paper_s_settings() -> None:
    evaluations = solve(BeamConfig(), Pairwise.random(32), k=7).outcome.evaluations
    greedy = solve(GreedyConfig(), Pairwise.random(32), k=7).outcome.evaluations
    assert greedy < evaluations < 887


def test_each_depth_is_one_contest_in_which_dropped_masks_rank_last() -> None:
    landscape = Additive(((0.0, 1.0, 2.0, 3.0, 4.0),))
    space = SearchSpace.of_blocks(5)
    signals = LandscapeSignals(landscape, space)
    run = beam(
        Problem(space, CountBudget(2), np.random.default_rng(0), signals), BeamConfig(width=2)
    )
    contest = next(run)
    assert isinstance(contest, Contest)
    assert contest.winners == 2
    # Block 0 was dropped early, with the lowest mean so far.
    judged = [Evaluation(m, (), float(m.blocks[0]), 0.0, m.blocks[0] != 0) for m in contest]
    contest = run.send(judged)
    assert isinstance(contest, Contest)
    assert contest.winners == 1
    wanted = {(1, i) for i in (0, 2, 3, 4)} | {(2, i) for i in (0, 3, 4)}
    assert {m.blocks for m in contest} == {tuple(sorted(pair)) for pair in wanted}
    with pytest.raises(StopIteration) as stop:
        run.send([Evaluation(m, (), 0.0, 0.0, m.blocks == (2, 4)) for m in contest])
    assert stop.value.value == Mask.of(5, [2, 4])


def test_sets_that_cannot_grow_fall_out() -> None:
    # What contains block 0 may not grow, which greedy meets as a dead end.
    space = SearchSpace.of_blocks(5, constraint=lambda m: 0 not in m.blocks or len(m) == 1)
    landscape = Additive(((0.0, 1.0, 2.0, 3.0, 4.0),))
    with pytest.raises(UsageError, match="nothing can be removed after 1 of 3 units"):
        solve(GreedyConfig(), landscape, space=space)
    assert solve(BeamConfig(width=2), landscape, space=space).mask == Mask.of(5, [1, 2, 3])


def test_a_dead_end_is_reported() -> None:
    space = SearchSpace.of_blocks(6, constraint=lambda m: len(m) < 3)
    with pytest.raises(UsageError, match="nothing can be removed after 2 of 4 units"):
        solve(BeamConfig(), Additive.random(6), k=4, space=space)
