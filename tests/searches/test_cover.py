import numpy as np
import pytest

from shoal.core.budget import Budget, CountBudget, WeightBudget
from shoal.core.space import SearchSpace
from shoal.core.units import Granularity, units_of_granularity
from shoal.searches.cover import Cover
from shoal.searches.unit_sets import mask_of, sets_of, units_of
from shoal.testing.searches_by_unit import CASES, Case, cases

DEPTH = 8


def problem(kind: Granularity, count: bool) -> tuple[SearchSpace, Budget]:
    prices = tuple(np.random.default_rng(3).integers(1, 30, 2 * DEPTH).tolist())
    space = SearchSpace(DEPTH, units_of_granularity(kind, DEPTH))
    return space, CountBudget(4) if count else WeightBudget(prices, 0.4 * sum(prices))


problems = pytest.mark.parametrize(
    ("kind", "count"),
    [(Granularity.HALF, True), (Granularity.HALF, False), (Granularity.BOTH, False)],
)


@problems
def test_whatever_is_preferred_sets_are_answers_and_distinct_ones_come(
    kind: Granularity, count: bool
) -> None:
    space, budget = problem(kind, count)
    cover, rng = Cover.of(space, budget), np.random.default_rng(0)
    keys = rng.gumbel(size=(200, len(space.units)))
    rows, met = cover.completed(np.zeros(keys.shape, bool), keys)
    assert len(rows) == met.sum() >= 150
    masks = [mask_of(space, chosen) for chosen in sets_of(rows)]
    assert all(mask is not None and budget.is_answer(space, mask) for mask in masks)
    assert len(masks) > 50


@problems
def test_units_are_taken_by_preference_and_put_back_against_it(
    kind: Granularity, count: bool
) -> None:
    space, budget = problem(kind, count)
    cover, rng = Cover.of(space, budget), np.random.default_rng(1)
    for _ in range(30):
        keys = rng.gumbel(size=len(space.units))
        rows, _ = cover.completed(np.zeros((1, len(keys)), bool), keys)
        mask, order = space.dense, np.argsort(-keys)
        for i in order:
            if not budget.is_met(space, mask) and space.is_free(int(i), mask):
                mask = mask.without(space.units[i])
        if not budget.is_met(space, mask):
            assert not len(rows)
            continue
        mask = budget.trimmed(space, mask, [space.units[i] for i in order[::-1]])
        assert sets_of(rows) == [units_of(space, mask)]


@problems
def test_around_a_set_are_answers_with_a_unit_out_and_another_in(
    kind: Granularity, count: bool
) -> None:
    space, budget = problem(kind, count)
    cover, rng = Cover.of(space, budget), np.random.default_rng(2)
    chosen = units_of(space, budget.sample(space, rng))
    around = cover.around(chosen, rng.gumbel(size=len(space.units)))
    assert len(around) == len(set(around)) > len(chosen)
    for units in around:
        mask = mask_of(space, units)
        assert mask is not None
        assert budget.is_answer(space, mask)
        assert set(chosen) - set(units)
        assert set(units) - set(chosen)
    if count:
        assert all(len(set(chosen) - set(units)) == 1 for units in around)


@cases
@pytest.mark.parametrize("seed", range(3))
def test_every_answer_is_reached_by_exchanges(case: Case, seed: int) -> None:
    space, rng = case.space(), np.random.default_rng(seed)
    cover = Cover.of(space, case.budget)
    answers = {units_of(space, mask) for mask in case.budget.masks(space)}
    seen = {units_of(space, case.budget.sample(space, rng))}
    frontier = list(seen)
    while frontier:
        found = cover.around(frontier.pop(), rng.gumbel(size=len(space.units)))
        frontier += [units for units in found if units not in seen]
        seen.update(found)
    assert seen <= answers
    assert len(seen) >= 0.9 * len(answers)


def test_the_cases_of_the_suite_have_as_many_answers_as_it_expects() -> None:
    assert [case.budget.size(case.space(), 1000) for case in CASES.values()] == [15, 56, 36]
