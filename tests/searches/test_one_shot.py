from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.config.searches import OneShotConfig
from shoal.core.budget import CountBudget
from shoal.core.errors import UsageError
from shoal.core.mask import Mask, Part, Site
from shoal.core.space import SearchSpace
from shoal.searches.base import Problem
from shoal.searches.one_shot import one_shot
from shoal.testing.landscapes import Additive, Broken, Pairwise, optimum
from shoal.testing.searches import DEPTH, SearchConformance, no_neighbours, solve

STATE_RANKS = ["block_influence", "relative_magnitude", "norm_ratio", "taylor", "magnitude"]


class TestOneShot(SearchConformance):
    deterministic = True

    @pytest.fixture
    def config(self) -> OneShotConfig:
        return OneShotConfig()


class TestOneShotByStateScore(SearchConformance):
    deterministic = True

    @pytest.fixture(params=STATE_RANKS)
    def config(self, request: pytest.FixtureRequest) -> OneShotConfig:
        return OneShotConfig(rank=request.param)


class TestOneShotByAngularDistance(SearchConformance):
    needs_blocks = True

    # It removes neighbours only, which the best set need not be.
    separable_optimum = False

    @pytest.fixture
    def config(self) -> OneShotConfig:
        return OneShotConfig(rank="angular")

    @pytest.mark.parametrize("protect", [(0,), (0, DEPTH - 1), (1, 5)])
    def test_never_touches_protected_units(self, config: Any, protect: tuple[int, ...]) -> None:
        # The suite also protects (1, 2, 5), which leaves no window of 3 blocks.
        super().test_never_touches_protected_units(config, protect)

    def test_satisfies_the_constraint(self, config: Any) -> None:
        # The suite's constraint forbids neighbours; this one leaves it a window.
        space = SearchSpace.of_blocks(DEPTH, constraint=lambda m: 2 not in m.blocks)
        landscape = Additive(((0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.5, 1.0),))
        assert solve(config, landscape, space=space).mask == Mask.of(DEPTH, [4, 5, 6])


@dataclass
class Given:
    """Signals with given scores."""

    scores: Sequence[float]
    asked: tuple[str, int] | None = None

    def units(self, name: str) -> Sequence[float]:
        self.asked = (name, 1)
        return self.scores

    def windows(self, name: str, length: int) -> Sequence[float]:
        self.asked = (name, length)
        return self.scores

    def gradients(self) -> Any:
        raise NotImplementedError


def by_scores(
    rank: str, space: SearchSpace, k: int, scores: Sequence[float]
) -> tuple[tuple[str, int] | None, list[Mask]]:
    signals = Given(scores)
    problem = Problem(space, CountBudget(k), np.random.default_rng(0), signals)
    run = one_shot(problem, OneShotConfig.read({"rank": rank}))
    asked = list(next(run))
    with pytest.raises(StopIteration) as stop:
        run.send([])
    assert asked == [stop.value.value]
    return signals.asked, asked


@given(st.integers(0, 999), st.integers(1, 6))
def test_exact_where_removals_add_up(seed: int, k: int) -> None:
    landscape = Additive.random(7, seed)
    found = solve(OneShotConfig(), landscape, k=k).outcome.best
    assert found.mean == optimum(landscape, SearchSpace.of_blocks(7), k).mean


@given(st.integers(0, 999), st.integers(1, 6), st.sets(st.integers(0, 6), max_size=2))
def test_removes_the_k_cheapest_singles(seed: int, k: int, broken: set[int]) -> None:
    landscape = Broken.at(Pairwise.random(7, seed), broken)
    solved = solve(OneShotConfig(), landscape, k=k)
    scores = solved.evaluator.evaluate([Mask.of(7, [i]) for i in range(7)])
    cheapest = sorted(range(7), key=lambda i: (scores[i].rank_key, i))[:k]
    assert solved.mask == Mask.of(7, cheapest)


@pytest.mark.parametrize(("k", "cost"), [(1, 8), (3, 9), (7, 9)])
def test_costs_n_evaluations_and_one_for_the_result(k: int, cost: int) -> None:
    assert solve(OneShotConfig(), Additive.random(8), k=k).outcome.evaluations == cost


def test_budgets_share_their_ranking() -> None:
    landscape = Pairwise.random(8, 4)
    found = [set(solve(OneShotConfig(), landscape, k=k).mask.blocks) for k in range(1, 8)]
    assert all(small < large for small, large in pairwise(found))


@pytest.mark.parametrize("rank", ["loss", *STATE_RANKS])
def test_a_constraint_that_leaves_too_few_is_reported(rank: str) -> None:
    space = SearchSpace.of_blocks(6, constraint=lambda m: len(m) < 3)
    with pytest.raises(UsageError, match="no 4 units can be removed together"):
        solve(OneShotConfig.read({"rank": rank}), Additive.random(6), k=4, space=space)


@pytest.mark.parametrize("rank", [*STATE_RANKS, "angular"])
def test_a_state_score_costs_only_the_evaluation_of_the_result(rank: str) -> None:
    solved = solve(OneShotConfig.read({"rank": rank}), Pairwise.random(8))
    assert solved.outcome.evaluations == 1


@pytest.mark.parametrize("rank", STATE_RANKS)
def test_state_scores_rank_units_the_lowest_first_and_not_finite_last(rank: str) -> None:
    space = SearchSpace.of_blocks(7, protect=[0])
    asked, masks = by_scores(rank, space, 3, [nan, 0.25, -inf, 0.25, 0.5, 0.25])
    assert asked == (rank, 1)
    assert masks == [Mask.of(7, [2, 4, 6])]


@pytest.mark.parametrize("rank", STATE_RANKS)
def test_state_scores_rank_parts_of_blocks_too(rank: str) -> None:
    parts = [Site(layer, part) for layer in range(2) for part in (Part.ATTN, Part.MLP)]
    space = SearchSpace(2, tuple(frozenset({s}) for s in parts))
    _, masks = by_scores(rank, space, 2, [3.0, 1.0, 0.0, 2.0])
    assert masks == [Mask(2, frozenset({parts[1], parts[2]}))]


@pytest.mark.parametrize(
    ("scores", "protect", "first"),
    [
        ([3.0, 2.0, 1.0, 4.0], (), 2),
        ([1.0, 2.0, 3.0, 4.0], (), 0),  # the first block is no exception
        ([4.0, 3.0, 2.0, 1.0], (), 3),  # nor is the last
        ([4.0, 1.0, 1.0, 4.0], (), 1),
        ([nan, -inf, 5.0, inf], (), 2),
        ([nan, nan, nan, nan], (), 0),
        ([0.0, 0.0, 1.0, 2.0], (1,), 2),
        ([0.0, 0.0, 0.0, 2.0], (2,), 3),
    ],
)
def test_angular_takes_the_best_window_of_k_blocks(
    scores: list[float], protect: tuple[int, ...], first: int
) -> None:
    asked, masks = by_scores("angular", SearchSpace.of_blocks(6, protect), 3, scores)
    assert asked == ("angular", 3)
    assert masks == [Mask.of(6, range(first, first + 3))]


@pytest.mark.parametrize(
    "space",
    [SearchSpace.of_blocks(8, (2, 5)), SearchSpace.of_blocks(8, constraint=no_neighbours)],
)
def test_no_window_for_angular_is_reported(space: SearchSpace) -> None:
    with pytest.raises(UsageError, match="no 3 consecutive blocks can be removed"):
        solve(OneShotConfig(rank="angular"), Additive.random(8), space=space)


def test_angular_needs_whole_blocks() -> None:
    space = SearchSpace(4, tuple(frozenset({Site(i, Part.ATTN)}) for i in range(4)))
    with pytest.raises(UsageError, match="one_shot by angular removes runs of whole blocks"):
        solve(OneShotConfig(rank="angular"), Additive.random(4), k=2, space=space)
