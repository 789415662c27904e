from collections import Counter
from itertools import chain, combinations
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.core.budget import Budget, CountBudget, WeightBudget, budget_of
from shoal.core.covering import heaviest
from shoal.core.errors import UsageError
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.core.units import Granularity, units_of_granularity

DEPTH = 4
EIGHTHS = st.lists(st.integers(0, 24), min_size=2 * DEPTH, max_size=2 * DEPTH)
KINDS = st.sampled_from([Granularity.BLOCK, Granularity.HALF, Granularity.ATTN, Granularity.BOTH])


def space_of(
    kind: Granularity = Granularity.BOTH, protect: set[int] | None = None, depth: int = DEPTH
) -> SearchSpace:
    return SearchSpace(depth, units_of_granularity(kind, depth, protect or ()))


def all_masks(space: SearchSpace) -> list[Mask]:
    units = range(len(space.units))
    sets = chain.from_iterable(combinations(units, k) for k in range(1, len(units) + 1))
    masks = {
        space.dense.without(s for i in chosen for s in space.units[i]): None for chosen in sets
    }
    return [m for m in masks if space.is_valid(m)]


def by_hand(space: SearchSpace, prices: list[float], target: float) -> set[Mask]:
    """Answers, straight from the definition."""

    def met(mask: Mask) -> bool:
        return sum(prices[place] for place in mask.places) >= target

    return {
        mask
        for mask in all_masks(space)
        if met(mask)
        and not any(
            met(m) and space.is_valid(m)
            for m in (mask.restored(unit) for unit in space.removed_units(mask))
        )
    }


@settings(max_examples=30)
@given(EIGHTHS, st.integers(1, 80), KINDS, st.sets(st.integers(0, DEPTH - 1), max_size=1))
def test_the_answers_are_those_of_the_definition(
    eighths: list[int], target: int, kind: Granularity, protect: set[int]
) -> None:
    space, prices = space_of(kind, protect), [e / 8 for e in eighths]
    budget = WeightBudget(tuple(prices), target / 8)
    expected = by_hand(space, prices, target / 8)
    found = list(budget.masks(space))
    assert len(found) == len(set(found))
    assert set(found) == expected
    assert {m for m in all_masks(space) if budget.is_answer(space, m)} == expected
    assert budget.size(space, 1000) == len(expected)
    assert (budget.size(space, 2) > 2) == (len(expected) > 2)
    assert max((len(space.removed_units(m)) for m in expected), default=0) <= budget.most(space)
    most = max(budget.spent(space, m) for m in all_masks(space))
    if most < target / 8:
        with pytest.raises(UsageError, match="cannot remove"):
            budget.check(space)
        assert not expected
    else:
        budget.check(space)
        assert expected
        rng = np.random.default_rng(0)
        assert {budget.sample(space, rng) for _ in range(5)} <= expected


@settings(max_examples=30)
@given(EIGHTHS, KINDS, st.integers(0, 5), st.data())
def test_reach_is_the_most_that_can_be_added(
    eighths: list[int], kind: Granularity, seed: int, data: st.DataObject
) -> None:
    space = space_of(kind)
    budget = WeightBudget(tuple(e / 8 for e in eighths), 1.0)
    start = data.draw(st.sampled_from([space.dense, *space.masks(1), *space.masks(2)]))
    larger = [m for m in all_masks(space) if start.places <= m.places]
    larger = [m for m in larger if set(space.removed_units(start)) <= set(space.removed_units(m))]
    prices = tuple(map(budget.price, space.units))
    added = heaviest(space.spans, prices, 2 * DEPTH, start.places)
    grown = max(budget.spent(space, m) for m in [start, *larger])
    assert added == pytest.approx(grown - budget.spent(space, start))


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("kind", [Granularity.BOTH, Granularity.HALF, Granularity.BLOCK])
def test_equal_prices_are_a_count(k: int, kind: Granularity) -> None:
    space = space_of(kind)
    price = 1.0 if kind is Granularity.BOTH else 0.5
    weight, count = WeightBudget((price,) * 2 * DEPTH, k), CountBudget(k)
    assert list(weight.masks(space)) == list(count.masks(space)) == list(space.masks(k))
    assert weight.most(space) == count.most(space) == k
    assert weight.size(space, 10_000) == count.size(space, 10_000) == space.size(k)
    for mask in all_masks(space):
        assert weight.is_answer(space, mask) == count.is_answer(space, mask)
        assert weight.within(space, mask) == count.within(space, mask)
        assert weight.is_met(space, mask) == count.is_met(space, mask)


def test_rounding_of_prices_does_not_cost_a_unit() -> None:
    space = space_of()
    budget = WeightBudget((0.1,) * 2 * DEPTH, 0.1 + 0.1 + 0.1)
    assert budget.most(space) == 3
    assert all(len(space.removed_units(m)) == 3 for m in budget.masks(space))
    assert all(budget.within(space, m) for m in budget.masks(space))


def test_what_is_in_vain_is_put_back_in_the_order_that_is_asked_for() -> None:
    space = space_of()
    budget = WeightBudget((1.0, 3.0) * DEPTH, 4.0)
    a0, m0, a1, m1 = space.units[:4]
    mask = space.dense.without(a0 | m0 | a1 | m1)
    assert budget.superfluous(space, mask) == [a0, m0, a1, m1]
    assert budget.trimmed(space, mask, [m1, a1]) == Mask.parse("-[0]", DEPTH)
    assert budget.trimmed(space, mask, [a0, a1]) == Mask.parse("-[0.mlp,1.mlp]", DEPTH)
    assert budget.trimmed(space, mask, []) == Mask.parse("-[1]", DEPTH)


def test_a_unit_that_a_constraint_needs_is_not_in_vain() -> None:
    pairs = SearchSpace.of_blocks(6, constraint=lambda m: m.num_blocks % 2 == 0)
    budget = WeightBudget((1.0,) * 12, 5.0)
    answers = list(budget.masks(pairs))
    assert {m.num_blocks for m in answers} == {4}
    assert len(answers) == 15
    assert budget.is_answer(pairs, answers[0])


def test_every_answer_is_drawn_and_the_order_of_equals_is_fair() -> None:
    space, rng = space_of(), np.random.default_rng(0)
    budget = WeightBudget((1.0, 2.5) * DEPTH, 4.0)
    drawn = Counter(budget.sample(space, rng) for _ in range(1000))
    assert set(drawn) == set(budget.masks(space))
    parts = Counter(
        site.layer for mask, times in drawn.items() for site in mask for _ in range(times)
    )
    assert max(parts.values()) < 1.3 * min(parts.values())


@pytest.mark.parametrize("kind", [Granularity.HALF, Granularity.BOTH])
def test_a_tight_target_is_drawn_too(kind: Granularity) -> None:
    """Half steps leave gaps; in random order they would hardly ever reach it."""
    space = space_of(kind, depth=20)
    budget = WeightBudget((1.0, 2.5) * 20, 19 * 3.5)
    budget.check(space)
    mask = budget.sample(space, np.random.default_rng(0))
    assert budget.is_answer(space, mask)


@pytest.mark.parametrize("target", [0.0, -1.0, nan, inf])
def test_a_target_must_be_positive(target: float) -> None:
    with pytest.raises(
        UsageError, match=r"cannot remove .* parameters: it must be a number above 0"
    ):
        WeightBudget((1.0,) * 8, target)


@pytest.mark.parametrize("price", [-1.0, nan, inf])
def test_prices_must_be_numbers_from_zero_on(price: float) -> None:
    with pytest.raises(UsageError, match="prices are numbers from 0 on"):
        WeightBudget((1.0, price), 1.0)


def test_a_target_out_of_reach_is_refused_with_what_is_possible() -> None:
    budget = WeightBudget((1e6, 2e6) * DEPTH, 8e6)
    budget.check(space_of())
    with pytest.raises(UsageError, match=r"8,000,000 parameters.* have 6,000,000 together"):
        budget.check(space_of(protect={0, 3}))
    with pytest.raises(UsageError, match="have 11,000,000 together while one sub-layer stays"):
        WeightBudget(budget.prices, 12e6).check(space_of())
    with pytest.raises(UsageError, match="has 10 sub-layers, but 8 prices"):
        budget.check(space_of(depth=5))
    none = SearchSpace(DEPTH, space_of().units, constraint=lambda m: len(m.places) < 2)
    with pytest.raises(UsageError, match="no valid mask that removes 8,000,000 parameters"):
        budget.sample(none, np.random.default_rng(0))


def test_a_number_is_a_count_of_units() -> None:
    weight: Budget = WeightBudget((1.0,) * 8, 2.0, "seconds")
    assert budget_of(3) == CountBudget(3)
    assert budget_of(weight) is weight
    assert (str(budget_of(3)), str(weight)) == ("3 units", "2 seconds")
    with pytest.raises(UsageError, match="smallest number is 1"):
        budget_of(0).check(space_of())


@pytest.mark.parametrize("kind", [Granularity.HALF, Granularity.BLOCK])
def test_a_count_is_reachable_as_long_as_enough_fits(kind: Granularity) -> None:
    space = space_of(kind)
    for k in range(1, DEPTH):
        for mask in space.masks(k):
            removed = set(space.removed_units(mask))
            could = any(removed <= set(space.removed_units(m)) for m in space.masks(3))
            assert CountBudget(3).reachable(space, mask) == could or not space.overlapping
