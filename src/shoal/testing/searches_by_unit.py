"""What every search must do where units are not whole blocks, or the budget is a weight."""

from dataclasses import dataclass
from math import nan
from typing import ClassVar

import pytest

from shoal.config.searches import SearchConfig
from shoal.core.budget import Budget, CountBudget, WeightBudget
from shoal.core.errors import UsageError
from shoal.core.mask import Mask
from shoal.core.space import Constraint, SearchSpace
from shoal.core.units import Granularity, units_of_granularity
from shoal.engine.driver import Limits
from shoal.testing.landscapes import Broken, Sublayers, optimum
from shoal.testing.solving import Solved, solve

DEPTH = 4

PRICES = tuple(
    price for block in range(DEPTH) for price in (1.0 + block % 3 / 8, 2.5 + 2 * block % 5 / 8)
)
"""Attention and MLP of each block: different, and not the same in any two blocks."""


@dataclass(frozen=True)
class Case:
    """A kind of units and a budget.

    Attributes:
        granularity: What one unit is.
        budget: How much to remove.
    """

    granularity: Granularity
    budget: Budget

    def space(
        self, protect: tuple[int, ...] = (), constraint: Constraint | None = None
    ) -> SearchSpace:
        """The space of such units."""
        units = units_of_granularity(self.granularity, DEPTH, protect)
        return SearchSpace(DEPTH, units, constraint)

    def fits(self, config: SearchConfig, space: SearchSpace, mask: Mask) -> bool:
        """Whether a mask may be the result of a search."""
        if config.fixed_count:
            return self.budget.is_answer(space, mask)
        return space.is_valid(mask) and self.budget.within(space, mask)


CASES = {
    "half": Case(Granularity.HALF, CountBudget(2)),
    "both": Case(Granularity.BOTH, CountBudget(3)),
    "weight": Case(Granularity.BOTH, WeightBudget(PRICES, 0.4 * sum(PRICES))),
}

cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def some_pairs_stay(mask: Mask) -> bool:
    """A constraint for tests: some sub-layers never go together."""
    return not any(pair <= mask.places for pair in ({2, 5}, {4, 7}))


def searched(solved: Solved) -> list[Mask]:
    """What a search asked for, without the dense model and the driver's own questions."""
    asked = [mask for masks in solved.evaluator.asked[1:-1] for mask in masks]
    return [mask for mask in asked if len(mask)]


class UnitConformance:
    """Tests that every search must pass on half steps, sub-layers, and under a weight.

    Attributes:
        needs_blocks: Whether the search removes runs of blocks, and refuses everything else.
        separable_optimum: Whether it promises the best mask where removals do not interact, units
            do not overlap and count alike.
        unit_optimum: Whether it promises the best mask where sub-layers interact in pairs,
            whatever the units and the budget.
        deterministic: Whether it draws nothing, so that a weight of k at equal prices has to lead
            to the same masks as k units.
    """

    needs_blocks: ClassVar[bool] = False
    separable_optimum: ClassVar[bool] = True
    unit_optimum: ClassVar[bool] = False
    deterministic: ClassVar[bool] = False

    @pytest.fixture(autouse=True)
    def _skips_what_is_refused(self, request: pytest.FixtureRequest) -> None:
        if self.needs_blocks and "case" in request.fixturenames:
            pytest.skip("this search refuses what is not whole blocks")

    @pytest.mark.parametrize("name", CASES)
    def test_refuses_what_it_cannot_do_before_any_work(
        self, config: SearchConfig, name: str
    ) -> None:
        """A search of runs of blocks says at once that it needs blocks, or a number of them."""
        if not self.needs_blocks:
            pytest.skip("this search removes units of any kind")
        case = CASES[name]
        blocks = SearchSpace.of_blocks(DEPTH)
        space = case.space() if case.budget.uniform else blocks
        with pytest.raises(UsageError, match="removes runs of"):
            solve(config, Sublayers.random(DEPTH), k=case.budget, space=space)

    @cases
    @pytest.mark.parametrize("seed", [0, 1])
    def test_by_unit_the_result_is_the_best_answer_that_was_seen(
        self, config: SearchConfig, case: Case, seed: int
    ) -> None:
        """It meets the budget, removes nothing in vain, and no mask is asked for twice.

        Where the search promises it, it is the best answer of all, and it is never better.
        """
        landscape, space = Sublayers.random(DEPTH, seed, strength=0.5), case.space()
        solved = solve(config, landscape, k=case.budget, space=space, seed=seed)
        assert case.fits(config, space, solved.mask)
        asked = searched(solved)
        assert len(asked) == len(set(asked))
        if config.fixed_count:
            best, found = optimum(landscape, space, case.budget), solved.outcome.best
            assert found.mean == best.mean if self.unit_optimum else found.mean >= best.mean
            assert solved.mask in asked
            seen = (solved.evaluator.known(m) for m in asked if case.fits(config, space, m))
            assert found.mean == min(e.mean for e in seen if e is not None)
        if seed == 0:
            again = solve(config, landscape, k=case.budget, space=space, seed=seed)
            assert again.evaluator.asked == solved.evaluator.asked
            assert again.outcome == solved.outcome

    @cases
    def test_by_unit_protection_holds(self, config: SearchConfig, case: Case) -> None:
        """Nothing of a protected block is touched."""
        space, landscape = case.space((3,)), Sublayers.random(DEPTH, 2, strength=0.5)
        solved = solve(config, landscape, k=case.budget, space=space)
        assert case.fits(config, space, solved.mask)
        assert all(site.layer != 3 for mask in solved.asked for site in mask)

    @cases
    def test_by_unit_constraints_hold(self, config: SearchConfig, case: Case) -> None:
        """The result is allowed."""
        space = case.space(constraint=some_pairs_stay)
        landscape = Sublayers.random(DEPTH, 2, strength=0.5)
        assert case.fits(config, space, solve(config, landscape, k=case.budget, space=space).mask)

    @cases
    def test_by_unit_ties(self, config: SearchConfig, case: Case) -> None:
        """Where all masks tie, some answer is found."""
        flat = Sublayers(((0.0,) * 2 * DEPTH,))
        space = case.space()
        solved = solve(config, flat, k=case.budget, space=space)
        assert case.fits(config, space, solved.mask)

    @cases
    def test_by_unit_losses_that_are_not_finite(self, config: SearchConfig, case: Case) -> None:
        """Where a block cannot go without breaking the loss, it stays; where none can, it ends."""
        landscape, space = Sublayers.random(DEPTH, 4), case.space()
        for broken in ([1], range(DEPTH)):
            try:
                solved = solve(
                    config, Broken.at(landscape, broken, nan), k=case.budget, space=space
                )
            except ArithmeticError:
                pytest.skip("this search refuses gradients that are not finite")
            assert case.fits(config, space, solved.mask)
            assert solved.outcome.best.finite or len(broken) > 1

    @cases
    def test_by_unit_a_limit_ends_it_with_an_answer(self, config: SearchConfig, case: Case) -> None:
        """Any limit is kept and leaves a result; one that suffices changes nothing."""
        landscape, space = Sublayers.random(DEPTH, 5, strength=0.5), case.space()
        whole = solve(config, landscape, k=case.budget, space=space).outcome
        limits = {1, 9, whole.evaluations // 2}
        for most in sorted(n for n in limits if 0 < n < whole.evaluations):
            limited = Limits(evaluations=most)
            solved = solve(config, landscape, k=case.budget, space=space, limits=limited)
            assert case.fits(config, space, solved.mask)
            assert solved.outcome.evaluations <= most
        limited = Limits(evaluations=whole.evaluations)
        solved = solve(config, landscape, k=case.budget, space=space, limits=limited)
        assert solved.outcome == whole

    @pytest.mark.parametrize("seed", range(2))
    def test_by_unit_separable_optimum(self, config: SearchConfig, seed: int) -> None:
        """A count of sub-layers that do not interact is the best one."""
        if not self.separable_optimum or self.needs_blocks:
            pytest.skip("this search does not promise it")
        case, landscape = CASES["both"], Sublayers.random(DEPTH, seed)
        best = optimum(landscape, case.space(), case.budget)
        solved = solve(config, landscape, k=case.budget, space=case.space(), seed=seed)
        assert solved.outcome.best.mean == best.mean or not config.fixed_count

    @pytest.mark.parametrize("name", ["half", "both"])
    def test_a_weight_at_equal_prices_is_a_count(self, config: SearchConfig, name: str) -> None:
        """The same masks are asked for, and the same is found."""
        if not self.deterministic:
            pytest.skip("this search draws at random")
        space, landscape = CASES[name].space(), Sublayers.random(DEPTH, 7, strength=0.5)
        price = 1.0 if name == "both" else 0.5
        for k in (1, 3):
            count = solve(config, landscape, k=k, space=space)
            weight = WeightBudget((price,) * 2 * DEPTH, k)
            weighed = solve(config, landscape, k=weight, space=space)
            assert weighed.mask == count.mask
            assert set(searched(weighed)) == set(searched(count))
