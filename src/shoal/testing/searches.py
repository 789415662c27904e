"""What every search must do: a suite to subclass in the tests of one.

    from shoal.testing.searches import SearchConformance

    class TestMySearch(SearchConformance):
        @pytest.fixture
        def config(self):
            return MySearchConfig(samples=50)

The problems are small: at most 8 blocks, at most 70 masks of k units. A config should leave the
search room to look at all of them where it may. Part of the suite is the same for sub-layers, half
steps and weights, see `shoal.testing.searches_by_unit`.
"""

from math import inf, nan
from pathlib import Path
from typing import ClassVar

import pytest

from shoal.config.searches import SearchConfig
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.engine.driver import Limits
from shoal.engine.store import Store
from shoal.testing.landscapes import Additive, Broken, Pairwise, Stopped, optimum
from shoal.testing.searches_by_unit import UnitConformance
from shoal.testing.solving import Solved, no_neighbours, solve

__all__ = ["SearchConformance", "Solved", "assert_count", "no_neighbours", "solve"]

DEPTH = 8
SMALL = 6
"""Depth where every budget is tried."""


def assert_count(config: SearchConfig, mask: Mask, k: int) -> None:
    """A mask removes `k` units, or at most that many where the search has no fixed count."""
    assert mask.num_blocks == len(mask)
    assert mask.num_blocks == k if config.fixed_count else mask.num_blocks <= k


class SearchConformance(UnitConformance):
    """Tests that every search must pass; override the fixture `config`.

    A search without a fixed count (`SearchConfig.fixed_count`) may remove fewer units than asked,
    none included, so that for it the dense model is a result like any other.

    Attributes:
        separable_optimum: Whether the search promises the best mask where removals do not
            interact.
        pairwise_optimum: Whether it promises the best mask of any landscape.
        first_of_ties: Whether the search promises, where all masks tie, the one whose units come
            first.

    And those of `UnitConformance`.
    """

    separable_optimum: ClassVar[bool] = True
    pairwise_optimum: ClassVar[bool] = False
    first_of_ties: ClassVar[bool] = True

    @pytest.fixture
    def config(self) -> SearchConfig:
        """The search under test."""
        raise NotImplementedError("override the fixture `config` of SearchConformance")

    @pytest.mark.parametrize("k", [1, 2, 4, DEPTH - 1])
    def test_removes_exactly_k_units(self, config: SearchConfig, k: int) -> None:
        """The result removes what was asked, no more and no less."""
        assert_count(config, solve(config, Pairwise.random(DEPTH), k=k).mask, k)

    @pytest.mark.parametrize("protect", [(0,), (0, DEPTH - 1), (1, 2, 5)])
    def test_never_touches_protected_units(
        self, config: SearchConfig, protect: tuple[int, ...]
    ) -> None:
        """Neither the result nor any mask on the way removes a protected block."""
        additive = Additive.random(DEPTH)
        cheap = tuple(
            tuple(-1.0 if i in protect else c for i, c in enumerate(row)) for row in additive.costs
        )
        space = SearchSpace.of_blocks(DEPTH, protect)
        solved = solve(config, Additive(cheap), space=space)
        assert all(not set(mask.blocks) & set(protect) for mask in solved.asked)

    def test_removes_all_that_is_not_protected(self, config: SearchConfig) -> None:
        """A problem with a single answer gets that answer."""
        if not config.fixed_count:
            pytest.skip("without a fixed count there are several answers")
        space = SearchSpace.of_blocks(DEPTH, range(2, DEPTH))
        solved = solve(config, Additive.random(DEPTH), k=2, space=space)
        assert solved.mask == Mask.of(DEPTH, (0, 1))

    def test_satisfies_the_constraint(self, config: SearchConfig) -> None:
        """The result is a mask that the architecture allows, even where another would be better."""
        space = SearchSpace.of_blocks(DEPTH, constraint=no_neighbours)
        landscape = Additive(((0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0),))
        solved = solve(config, landscape, k=3, space=space)
        assert space.is_valid(solved.mask)
        assert_count(config, solved.mask, 3)

    @pytest.mark.parametrize("seed", [0, 1])
    def test_same_seed_same_masks(self, config: SearchConfig, seed: int) -> None:
        """Everything that is asked follows from the seed and the losses."""
        landscape = Pairwise.random(DEPTH, seed)
        first, second = (solve(config, landscape, seed=seed) for _ in range(2))
        assert first.evaluator.asked == second.evaluator.asked
        assert first.outcome == second.outcome

    def test_resumes_from_a_store(self, config: SearchConfig, tmp_path: Path) -> None:
        """Stopped in any batch and started again, it computes only what is missing.

        The result is that of a search that was never stopped.
        """
        landscape = Pairwise.random(DEPTH, 5)
        whole = solve(config, landscape)
        for stop in range(len(whole.evaluator.runs)):
            with Store(tmp_path / "store", {"stop": stop}) as store:
                with pytest.raises(Stopped):
                    solve(config, landscape, store=store, stop_after=stop)
                known = len(store)
            with Store(tmp_path / "store", {"stop": stop}) as store:
                again = solve(config, landscape, store=store)
                assert again.outcome == whole.outcome
                assert known + again.evaluator.computed == whole.evaluator.computed == len(store)
                finished = [mask for masks, done in store.batches() if done for mask in masks]
                assert len(finished) == len(set(finished))

    def test_a_finished_search_costs_nothing(self, config: SearchConfig, tmp_path: Path) -> None:
        """Run again on its own store, it computes no mask."""
        landscape = Pairwise.random(DEPTH, 6)
        with Store(tmp_path / "store", {}) as store:
            first = solve(config, landscape, store=store)
            second = solve(config, landscape, store=store)
        assert second.evaluator.runs == []
        assert second.outcome == first.outcome

    def test_returns_a_mask_that_it_has_seen(self, config: SearchConfig) -> None:
        """The result has been evaluated, and no evaluated mask of k units is better."""
        for seed in range(4):
            solved = solve(config, Pairwise.random(DEPTH, seed), seed=seed)
            searched = [m for masks in solved.evaluator.asked[1:-1] for m in masks]
            assert solved.mask in searched
            if not config.fixed_count:
                continue
            known = (solved.evaluator.known(m) for m in searched if len(m) == 3)
            assert solved.outcome.best.mean == min(e.mean for e in known if e is not None)

    def test_ties(self, config: SearchConfig) -> None:
        """Where all masks tie, some mask is found, the first where the search promises it."""
        solved = solve(config, Additive.flat(DEPTH))
        assert_count(config, solved.mask, 3)
        if self.first_of_ties:
            assert solved.mask == Mask.of(DEPTH, (0, 1, 2))

    @pytest.mark.parametrize("value", [nan, inf, -inf])
    def test_losses_that_are_not_finite_rank_last(self, config: SearchConfig, value: float) -> None:
        """A mask without a finite loss is not chosen while there is another."""
        solved = solve(config, Broken.at(Additive.random(DEPTH), (0, 3), value))
        assert solved.outcome.best.finite
        assert not set(solved.mask.blocks) & {0, 3}

    def test_nothing_finite(self, config: SearchConfig) -> None:
        """Where no loss is finite, the search still ends, with a mask of k units."""
        landscape = Broken.at(Additive.random(DEPTH), range(DEPTH))
        assert_count(config, solve(config, landscape).mask, 3)

    @pytest.mark.parametrize("k", [1, 3])
    def test_never_asks_twice(self, config: SearchConfig, k: int) -> None:
        """No mask but the dense one is asked for twice; what was answered is remembered.

        The first and the last question are the driver's.
        """
        solved = solve(config, Pairwise.random(DEPTH, 7), k=k)
        searched = [m for masks in solved.evaluator.asked[1:-1] for m in masks if len(m)]
        assert len(searched) == len(set(searched))

    def test_a_budget_ends_it_with_a_valid_mask(self, config: SearchConfig) -> None:
        """Any budget is kept and leaves a result; one that suffices changes nothing."""
        landscape, space = Pairwise.random(SMALL, 8), SearchSpace.of_blocks(SMALL)
        whole = solve(config, landscape)
        for most in range(1, whole.outcome.evaluations + 1):
            solved = solve(config, landscape, limits=Limits(evaluations=most))
            assert space.is_valid(solved.mask)
            assert_count(config, solved.mask, 3)
            assert solved.outcome.evaluations <= most
            assert solved.evaluator.computed <= most + 1  # the dense model comes on top
        assert solved.outcome == whole.outcome

    @pytest.mark.parametrize("seed", range(5))
    def test_separable_optimum(self, config: SearchConfig, seed: int) -> None:
        """Where removals do not interact, the brute-force optimum is found."""
        if not self.separable_optimum:
            pytest.skip("this search does not promise the optimum of a separable landscape")
        landscape = Additive.random(DEPTH, seed)
        best = optimum(landscape, SearchSpace.of_blocks(DEPTH), 3)
        assert solve(config, landscape, seed=seed).mask == best.mask

    @pytest.mark.parametrize("seed", range(5))
    def test_pairwise_optimum(self, config: SearchConfig, seed: int) -> None:
        """The brute-force optimum is found, whatever the interactions; or never beaten."""
        landscape = Pairwise.random(DEPTH, seed)
        best = optimum(landscape, SearchSpace.of_blocks(DEPTH), 3)
        solved = solve(config, landscape, seed=seed)
        assert solved.outcome.best.mean >= best.mean or not config.fixed_count
        if self.pairwise_optimum:
            assert solved.outcome.best.mean == best.mean
