from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.config.base import Named
from shoal.config.searches import BruteForceConfig, GreedyConfig, OneShotConfig, RandomConfig
from shoal.core.errors import BudgetError
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.engine.driver import drive, forecast
from shoal.engine.store import Store
from shoal.engine.trie import naive_passes, shared_passes
from shoal.searches.base import Problem, SearchRun, best_of
from shoal.testing.landscapes import Additive, Broken, LandscapeEvaluator, Pairwise, Stopped
from shoal.testing.searches import solve

SEARCHES: list[Named] = [
    GreedyConfig(),
    OneShotConfig(),
    BruteForceConfig(batch=7),
    RandomConfig(samples=12, batch=5),
    RandomConfig(samples=500, batch=50),
]
searches = st.sampled_from(SEARCHES)


class Own(Named):
    implementation: ClassVar[str] = "unused:unused"
    summary: ClassVar[str] = "a search of the test"
    name: Literal["own"] = "own"
    how: Any

    def load(self) -> Any:
        return self.how


def repeating(problem: Problem, config: Own) -> SearchRun:
    """Asks for the dense model, and for every mask twice."""
    masks = list(problem.space.masks(problem.k))
    yield [problem.space.dense, *masks, *masks]
    return best_of((yield masks)).mask


@given(searches, st.integers(2, 7), st.data())
def test_the_forecast_counts_what_the_search_asks_for(
    config: Named, depth: int, data: st.DataObject
) -> None:
    first_or_last = st.sets(st.sampled_from([0, depth - 1]), max_size=depth - 1)
    space = SearchSpace.of_blocks(depth, data.draw(first_or_last))
    k = data.draw(st.integers(1, min(len(space.units), depth - 1)))
    seed = data.draw(st.integers(0, 99))
    expected = forecast(config, space, k, seed)
    runs = solve(config, Pairwise.random(depth, seed), k=k, space=space, seed=seed).evaluator.runs
    assert expected.evaluations + 1 == sum(map(len, runs))
    assert expected.naive == sum(map(naive_passes, runs))
    assert expected.shared == sum(map(shared_passes, runs))
    assert expected.largest_batch == max(map(len, runs))


@given(searches, st.sets(st.integers(0, 7), max_size=5), st.integers(0, 99))
def test_protection_anywhere_changes_only_the_shared_passes(
    config: Named, protect: set[int], seed: int
) -> None:
    space = SearchSpace.of_blocks(8, protect)
    expected = forecast(config, space, 3, seed)
    solved = solve(config, Pairwise.random(8, seed), space=space, seed=seed)
    runs = solved.evaluator.runs
    assert expected.evaluations + 1 == solved.evaluator.computed
    assert expected.naive == sum(map(naive_passes, runs))
    assert expected.shared == pytest.approx(sum(map(shared_passes, runs)), rel=0.25)


def test_repeats_and_the_dense_model_are_counted_once() -> None:
    space = SearchSpace.of_blocks(5)
    expected = forecast(Own(how=repeating), space, 2, 0)
    assert (expected.evaluations, expected.largest_batch) == (11, 10)
    evaluator = solve(Own(how=repeating), Additive.random(5), k=2).evaluator
    assert evaluator.computed == 11


def test_the_forecast_reports_what_the_search_refuses() -> None:
    with pytest.raises(BudgetError, match="max_masks"):
        forecast(BruteForceConfig(max_masks=9), SearchSpace.of_blocks(6), 3, 0)


@given(searches, st.integers(0, 99), st.integers(0, 99), st.sets(st.integers(0, 6), max_size=2))
def test_resume_is_replay(config: Named, seed: int, stop: int, broken: set[int]) -> None:
    """Stopped in any batch, it goes on with unknown masks only and finds the same."""
    landscape = Broken.at(Pairwise.random(7, seed), broken)
    whole = solve(config, landscape, seed=seed)
    stop %= len(whole.evaluator.runs)
    with Store(None, {}) as store:
        with pytest.raises(Stopped):
            solve(config, landscape, seed=seed, store=store, stop_after=stop)
        again = solve(config, landscape, seed=seed, store=store)
    assert again.mask == whole.mask
    assert again.outcome.evaluations == whole.outcome.evaluations
    assert again.evaluator.runs == whole.evaluator.runs[stop:]
    assert again.evaluator.asked == whole.evaluator.asked


def test_searches_on_one_objective_share_their_evaluations(tmp_path: Path) -> None:
    landscape = Pairwise.random(7, 2)
    with Store(tmp_path / "s", {}) as store:
        solve(BruteForceConfig(), landscape, store=store)
        greedy = solve(GreedyConfig(), landscape, store=store).evaluator
    # Only the masks of one and two blocks are new.
    assert [len(r) for r in greedy.runs] == [7, 6]


def test_the_outcome_says_what_was_found_and_what_it_took() -> None:
    landscape = Additive(((0.5, 0.25, 1.0, 0.125),))
    heard: list[tuple[float, int]] = []
    evaluator: Any = LandscapeEvaluator(landscape)
    space = SearchSpace.of_blocks(4)

    def hear(evaluation: Evaluation, asked: int) -> None:
        heard.append((evaluation.mean, asked))

    outcome = drive(GreedyConfig(), space, 2, 0, evaluator, on_best=hear)
    assert (outcome.dense.mean, outcome.best.mean) == (1.0, 1.375)
    assert outcome.best.mask == Mask.of(4, [1, 3])
    assert outcome.evaluations == 7
    assert outcome.trace == (1.125, 1.375)
    assert heard == [(1.125, 4), (1.375, 7)]


@pytest.mark.parametrize(("budget", "enough"), [(7, True), (6, False), (3, False)])
def test_the_budget_stops_before_it_is_exceeded(budget: int, enough: bool) -> None:
    evaluator: Any = LandscapeEvaluator(Additive.random(4))
    space = SearchSpace.of_blocks(4)
    if enough:
        assert drive(GreedyConfig(), space, 2, 0, evaluator, budget=budget).evaluations == budget
        return
    with pytest.raises(BudgetError, match=f"more than {budget} evaluations.*is kept"):
        drive(GreedyConfig(), space, 2, 0, evaluator, budget=budget)
    assert evaluator.computed - 1 <= budget  # the dense model comes on top
    drive(GreedyConfig(), space, 2, 0, evaluator, budget=7)
    assert evaluator.computed == 8


@pytest.mark.parametrize("budget", [7, None])
def test_a_repeated_mask_costs_no_budget(budget: int | None) -> None:
    evaluator: Any = LandscapeEvaluator(Additive.random(4))
    outcome = drive(Own(how=repeating), SearchSpace.of_blocks(4), 2, 0, evaluator, budget=budget)
    assert outcome.evaluations == 7


@pytest.mark.parametrize(
    "wrong",
    [
        lambda depth: Mask.of(depth, [1]),
        lambda depth: Mask.of(depth, [0, 1]),
        lambda depth: Mask.of(depth + 1, [1, 2]),
        lambda depth: Mask.of(depth, [1, 2, 3]),
    ],
)
def test_a_search_that_returns_a_wrong_mask_is_caught(wrong: Callable[[int], Mask]) -> None:
    def search(problem: Problem, config: Own) -> SearchRun:
        yield [problem.space.dense]
        return wrong(problem.space.depth)

    space = SearchSpace.of_blocks(6, [0])
    with pytest.raises(RuntimeError, match="search own returned"):
        solve(Own(how=search), Additive.random(6), k=2, space=space)


def test_the_trace_survives_losses_that_are_not_finite() -> None:
    landscape = Broken.at(Additive.random(5), range(5), inf)
    outcome = solve(GreedyConfig(), landscape, k=2).outcome
    assert outcome.trace == (inf, inf)
    assert outcome.best.mask == Mask.of(5, [0, 1])
