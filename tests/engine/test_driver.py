from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.config.searches import (
    BruteForceConfig,
    GreedyConfig,
    OneShotConfig,
    RandomConfig,
    SearchConfig,
)
from shoal.core.budget import WeightBudget
from shoal.core.errors import BudgetError
from shoal.core.evaluation import Cost, Evaluation
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.core.units import Granularity, units_of_granularity
from shoal.engine.driver import Limits, Outcome, drive
from shoal.engine.forecast import forecast
from shoal.engine.ledger import TraceRow
from shoal.engine.store import Store
from shoal.engine.trie import naive_passes, shared_passes
from shoal.searches.base import Found, OutOfBudget, Problem, SearchRun, best_of
from shoal.testing.landscapes import (
    Additive,
    Broken,
    LandscapeEvaluator,
    Pairwise,
    Stopped,
    Sublayers,
    optimum,
)
from shoal.testing.searches import no_neighbours, solve
from shoal.testing.signals import LandscapeSignals

SEARCHES: list[SearchConfig] = [
    GreedyConfig(),
    OneShotConfig(),
    BruteForceConfig(batch=7),
    RandomConfig(samples=12, batch=5),
    RandomConfig(samples=500, batch=50),
]
searches = st.sampled_from(SEARCHES)


class Own(SearchConfig):
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
    config: SearchConfig, depth: int, data: st.DataObject
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
    config: SearchConfig, protect: set[int], seed: int
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
    assert (expected.evaluations, expected.largest_batch) == (10, 10)
    evaluator = solve(Own(how=repeating), Additive.random(5), k=2).evaluator
    assert evaluator.computed == 11


def test_the_forecast_reports_what_the_search_refuses() -> None:
    with pytest.raises(BudgetError, match="max_masks"):
        forecast(BruteForceConfig(max_masks=9), SearchSpace.of_blocks(6), 3, 0)


@given(searches, st.integers(0, 99), st.integers(0, 99), st.sets(st.integers(0, 6), max_size=2))
def test_resume_is_replay(config: SearchConfig, seed: int, stop: int, broken: set[int]) -> None:
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
    heard: list[tuple[float, list[str]]] = []
    evaluator = LandscapeEvaluator(landscape)
    space = SearchSpace.of_blocks(4)

    def hear(rows: Sequence[TraceRow], leader: Evaluation) -> None:
        heard.append((leader.mean, [row.mask for row in rows]))

    outcome = drive(
        GreedyConfig(), space, 2, 0, evaluator, LandscapeSignals(landscape, space), on_batch=hear
    )
    assert (outcome.dense.mean, outcome.best.mean) == (1.0, 1.375)
    assert outcome.best.mask == Mask.of(4, [1, 3])
    assert outcome.evaluations == 7
    assert outcome.trace == (1.125, 1.375)
    assert outcome.stopped is None
    assert heard == [
        (1.125, ["-[0]", "-[1]", "-[2]", "-[3]"]),
        (1.375, ["-[0,3]", "-[1,3]", "-[2-3]"]),
    ]


def run_on(
    landscape: Additive | Pairwise,
    config: SearchConfig,
    k: int,
    limits: Limits,
    space: SearchSpace | None = None,
) -> tuple[Outcome, LandscapeEvaluator]:
    evaluator = LandscapeEvaluator(landscape)
    space = space or SearchSpace.of_blocks(landscape.depth)
    signals = LandscapeSignals(landscape, space)
    return drive(config, space, k, 0, evaluator, signals, limits=limits), evaluator


@pytest.mark.parametrize("budget", range(1, 20))
def test_a_budget_ends_with_the_best_mask_so_far(budget: int) -> None:
    landscape = Pairwise.random(6, 3)
    outcome, evaluator = run_on(landscape, GreedyConfig(), 3, Limits(evaluations=budget))
    whole, _ = run_on(landscape, GreedyConfig(), 3, Limits())
    assert whole.evaluations == 15
    assert outcome.best.mask.num_blocks == 3
    # The one that is kept for filling up may not be worth it.
    assert min(budget, 15) - 1 <= outcome.evaluations <= min(budget, 15)
    assert evaluator.computed == outcome.evaluations + 1  # the dense model comes on top
    assert (outcome.stopped is None) == (budget >= 15)
    seen = [evaluator.known(m) for m in SearchSpace.of_blocks(6).masks(3)]
    assert outcome.best.mean == min(e.mean for e in seen if e is not None)


def test_an_unfinished_answer_is_filled_up_with_the_cheapest_alone() -> None:
    landscape = Additive(((0.5, 0.25, 1.0, 0.125, 0.75),))
    outcome, _ = run_on(landscape, GreedyConfig(), 3, Limits(evaluations=6))
    # All five singles, and no pair: one evaluation is left for the answer.
    assert outcome.best.mask == Mask.of(5, [0, 1, 3])


def test_filling_up_keeps_to_the_rules_of_the_space() -> None:
    landscape = Additive(((0.1, 0.1, 0.1, 1.0, 1.0, 1.0),))
    space = SearchSpace.of_blocks(6, protect=[0], constraint=no_neighbours)
    outcome, _ = run_on(landscape, GreedyConfig(), 2, Limits(evaluations=1), space)
    assert space.is_valid(outcome.best.mask)
    assert outcome.best.mask.num_blocks == 2


def test_a_mask_that_the_space_forbids_is_no_answer() -> None:
    """One-shot scores every unit alone, also one that must not go alone."""
    landscape = Additive(((0.1, 0.5, 0.6, 0.7),))
    space = SearchSpace.of_blocks(4, constraint=lambda mask: mask.blocks != (0,))
    outcome, _ = run_on(landscape, OneShotConfig(), 1, Limits(evaluations=3), space)
    assert outcome.best.mask == Mask.of(4, [1])


def test_a_time_budget_ends_between_masks_of_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each mask takes a minute of a made-up clock; a batch has six."""
    now = [0.0]
    monkeypatch.setattr("shoal.engine.driver.time.monotonic", lambda: now[0])
    landscape = Pairwise.random(6, 1)

    class Slow(LandscapeEvaluator):
        def evaluate(self, masks: Sequence[Mask]) -> list[Evaluation]:
            now[0] += 60 * len([m for m in masks if self.known(m) is None])
            found = super().evaluate(masks)
            return [replace(e, cost=Cost(0, 60)) for e in found]

    space = SearchSpace.of_blocks(6)
    signals = LandscapeSignals(landscape, space)
    outcome = drive(
        GreedyConfig(), space, 3, 0, Slow(landscape), signals, limits=Limits(seconds=200)
    )
    assert outcome.stopped == "minutes"
    # The dense model, three singles, and the mask that fills up.
    assert now[0] == 5 * 60 + 60 * (outcome.evaluations - 4)
    assert outcome.evaluations in (4, 5)
    assert outcome.best.mask.num_blocks == 3


def test_a_search_may_answer_when_its_budget_ends() -> None:
    def polite(problem: Problem, config: Own) -> SearchRun:
        best = problem.space.dense
        try:
            for mask in problem.space.masks(2):
                best = best_of((yield [mask])).mask
        except OutOfBudget:
            return Found(best, {"ended": "early"})
        return best

    outcome, _ = run_on(Additive.random(5), Own(how=polite), 2, Limits(evaluations=3))
    assert outcome.details == {"ended": "early"}
    assert (outcome.evaluations, outcome.stopped) == (3, "evaluations")


def test_costs_add_up_in_the_trace() -> None:
    landscape = Additive.random(4)
    rows: list[TraceRow] = []

    class Priced(LandscapeEvaluator):
        def evaluate(self, masks: Sequence[Mask]) -> list[Evaluation]:
            return [replace(e, cost=Cost(3, 0.5)) for e in super().evaluate(masks)]

    space = SearchSpace.of_blocks(4)
    drive(
        GreedyConfig(),
        space,
        2,
        0,
        Priced(landscape),
        LandscapeSignals(landscape, space),
        on_batch=lambda new, leader: rows.extend(new),
    )
    assert [r.evaluations for r in rows] == list(range(1, 8))
    assert [r.blocks for r in rows] == [3.0 * i for i in range(1, 8)]
    assert rows[-1].seconds == 3.5
    assert [r.best is None for r in rows] == [True] * 4 + [False] * 3


@pytest.mark.parametrize("budget", [6, None])
def test_a_repeated_mask_costs_no_budget(budget: int | None) -> None:
    outcome, _ = run_on(Additive.random(4), Own(how=repeating), 2, Limits(evaluations=budget))
    assert outcome.evaluations == 6
    assert outcome.stopped is None


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


def test_a_larger_budget_is_filled_up_no_worse_where_removals_do_not_interact() -> None:
    """Each unfinished answer is the best that what is known lets one expect."""
    landscape = Additive.random(7, 4)
    found = [
        run_on(landscape, GreedyConfig(), 3, Limits(evaluations=budget))[0].best.mean
        for budget in range(7, 25)
    ]
    assert found == [min(found)] * len(found)
    assert min(found) == optimum(landscape, SearchSpace.of_blocks(7), 3).mean


def test_one_bad_pair_is_not_built_upon() -> None:
    """The first pair of a round is known to be bad; the cheapest alone promise more."""
    additive = Additive(((0.1, 0.2, 0.3, 0.4, 0.5),))
    landscape = Pairwise(additive, {(0, 1): 9.0})
    outcome, _ = run_on(landscape, GreedyConfig(), 2, Limits(evaluations=7))
    # Five singles, the pair (0, 1), and one evaluation for the answer.
    assert outcome.best.mask != Mask.of(5, [0, 1])


def test_a_weight_that_was_not_reached_is_filled_up_by_what_costs_least_per_price() -> None:
    """All four singles, and one evaluation for the answer: the MLP of block 1 is dear and cheap."""
    landscape = Sublayers(((0.25, 8.0, 0.375, 0.5),))
    units = units_of_granularity(Granularity.BOTH, 2)
    space, budget = SearchSpace(2, units), WeightBudget((1.0, 3.0, 1.0, 3.0), 4.0)
    evaluator, signals = LandscapeEvaluator(landscape), LandscapeSignals(landscape, space)
    limits = Limits(evaluations=5)
    outcome = drive(GreedyConfig(), space, budget, 0, evaluator, signals, limits=limits)
    assert outcome.stopped == "evaluations"
    assert outcome.best.mask == Mask.parse("-[0.attn,1.mlp]", 2)


@pytest.mark.parametrize("wrong", ["-[0.attn]", "-[0-1]", "-[0,1.mlp]"])
def test_a_mask_that_misses_a_weight_or_removes_in_vain_is_caught(wrong: str) -> None:
    def search(problem: Problem, config: Own) -> SearchRun:
        yield [problem.space.dense]
        return Mask.parse(wrong, 2)

    space = SearchSpace(2, units_of_granularity(Granularity.BOTH, 2))
    budget = WeightBudget((1.0, 3.0, 1.0, 3.0), 4.0)
    with pytest.raises(RuntimeError, match="does not remove 4 parameters"):
        solve(Own(how=search), Sublayers.random(2), k=budget, space=space)
