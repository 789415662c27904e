from itertools import combinations
from math import inf, isnan, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask, Part, Site
from shoal.core.space import SearchSpace
from shoal.engine.store import Store
from shoal.testing.landscapes import (
    Additive,
    Broken,
    Landscape,
    LandscapeEvaluator,
    Pairwise,
    Stopped,
    optimum,
)

DENSE = Mask.dense(6)


def mean(landscape: Landscape, *blocks: int) -> float:
    mask = Mask.of(landscape.depth, blocks)
    return Evaluation.of(mask, landscape.losses(mask)).mean


@given(st.integers(0, 999), st.sets(st.integers(0, 5)))
def test_additive_costs_add_up_exactly(seed: int, blocks: set[int]) -> None:
    landscape = Additive.random(6, seed)
    singles = [mean(landscape, b) - mean(landscape) for b in blocks]
    assert mean(landscape, *blocks) - mean(landscape) == sum(singles)


@given(st.integers(0, 999), st.sets(st.integers(0, 5)))
def test_pairwise_is_additive_plus_its_couplings(seed: int, blocks: set[int]) -> None:
    landscape = Pairwise.random(6, seed)
    extra = sum(landscape.couplings[pair] for pair in combinations(sorted(blocks), 2))
    assert mean(landscape, *blocks) == mean(landscape.additive, *blocks) + extra


def test_the_parts_of_a_block_cost_what_the_block_costs() -> None:
    for landscape in (Additive.random(6), Pairwise.random(6)):
        parts = Mask(6, frozenset({Site(2), Site(4, Part.ATTN), Site(4, Part.MLP)}))
        assert landscape.losses(parts) == landscape.losses(Mask.of(6, [2, 4]))


def test_seeds_fix_everything_and_examples_differ() -> None:
    assert Pairwise.random(6, 3) == Pairwise.random(6, 3)
    assert Pairwise.random(6, 3) != Pairwise.random(6, 4)
    losses = Additive.random(6, examples=8).losses(Mask.of(6, [1]))
    assert len(set(losses)) > 1
    assert len(losses) == 8


def test_couplings_mislead_one_by_one_ranking_somewhere() -> None:
    space = SearchSpace.of_blocks(6)
    wrong = 0
    for seed in range(20):
        landscape = Pairwise.random(6, seed)
        ranked = np.argsort([mean(landscape, b) for b in range(6)])[:3]
        wrong += set(optimum(landscape, space, 3).mask.blocks) != set(ranked.tolist())
    assert wrong > 5


@pytest.mark.parametrize("value", [nan, inf, -inf])
def test_broken_masks_are_not_finite_and_the_others_are_untouched(value: float) -> None:
    inner = Additive.random(6)
    landscape = Broken.at(inner, [2], value)
    assert not Evaluation.of(DENSE, landscape.losses(Mask.of(6, [1, 2]))).finite
    assert landscape.losses(Mask.of(6, [1, 3])) == inner.losses(Mask.of(6, [1, 3]))
    assert 2 not in optimum(landscape, SearchSpace.of_blocks(6), 3).mask.blocks


def test_the_optimum_is_the_first_best() -> None:
    space = SearchSpace.of_blocks(6, [0])
    assert optimum(Additive.flat(6), space, 2).mask == Mask.of(6, [1, 2])
    broken = Broken.at(Additive.flat(6), range(6))
    assert isnan(optimum(broken, space, 2).mean)


def test_the_evaluator_answers_in_order_and_computes_each_mask_once() -> None:
    landscape = Additive.random(6)
    evaluator = LandscapeEvaluator(landscape)
    one, two = Mask.of(6, [1]), Mask.of(6, [2])
    found = evaluator.evaluate([two, one, two])
    assert [e.mask for e in found] == [two, one, two]
    assert [e.losses for e in found] == [landscape.losses(m) for m in (two, one, two)]
    assert evaluator.evaluate([one]) == found[1:2]
    assert evaluator.runs == [[two, one]]
    assert evaluator.computed == 2
    assert evaluator.known(one) == found[1]
    assert evaluator.known(DENSE) is None


def test_stopping_loses_the_batch_in_flight_only() -> None:
    with Store(None, {}) as store:
        evaluator = LandscapeEvaluator(Additive.random(6), store, stop_after=1)
        evaluator.evaluate([DENSE])
        with pytest.raises(Stopped):
            evaluator.evaluate([DENSE, Mask.of(6, [1])])
        assert evaluator.evaluate([DENSE])[0].mask == DENSE
        assert store.batches() == [(["-[]"], True), (["-[1]"], False)]
        assert len(store) == 1


def test_a_store_answers_what_another_evaluator_computed() -> None:
    with Store(None, {}) as store:
        first, second = (LandscapeEvaluator(Additive.random(6), store) for _ in range(2))
        assert first.evaluate([DENSE]) == second.evaluate([DENSE])
        assert (first.computed, second.computed) == (1, 0)
