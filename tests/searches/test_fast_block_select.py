from itertools import combinations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shoal.config.searches import FastBlockSelectConfig, OneShotConfig
from shoal.core.errors import UsageError
from shoal.core.mask import Mask, Part, Site
from shoal.core.space import SearchSpace
from shoal.searches.windows import runs
from shoal.testing.landscapes import Additive, Pairwise, optimum
from shoal.testing.searches import SearchConformance, Solved, no_neighbours, solve

# `angular` is not among them: there one-shot removes a window, and this starts from single blocks.
RANKS = ["loss", "block_influence", "taylor"]


class TestFastBlockSelect(SearchConformance):
    needs_blocks = True

    @pytest.fixture(params=[1, 10])
    def config(self, request: pytest.FixtureRequest) -> FastBlockSelectConfig:
        return FastBlockSelectConfig(windows=request.param)


class TestFastBlockSelectByStateScore(SearchConformance):
    needs_blocks = True

    @pytest.fixture(params=["block_influence", "angular"])
    def config(self, request: pytest.FixtureRequest) -> FastBlockSelectConfig:
        return FastBlockSelectConfig(rank=request.param)


def fast(rank: str = "loss", **options: int) -> FastBlockSelectConfig:
    return FastBlockSelectConfig.read({"rank": rank, **options})


def one_shot(rank: str, landscape: Pairwise, k: int) -> Solved:
    return solve(OneShotConfig.read({"rank": rank}), landscape, k=k)


def sets_asked(solved: Solved, k: int) -> list[list[Mask]]:
    """The masks of k blocks that the search asked for, by batch."""
    batches = solved.evaluator.asked[1:-1]
    return [found for batch in batches if (found := [m for m in batch if m.num_blocks == k])]


# Blocks 1 and 2 are cheap alone and dear together; 5 and 6 the other way round.
RUNS = Pairwise(
    Additive(((2.0, 0.125, 0.125, 2.0, 2.0, 0.5, 0.5, 2.0),)), {(1, 2): 4.0, (5, 6): -0.875}
)


@pytest.mark.parametrize("rank", RANKS)
def test_better_than_one_shot_where_runs_interact(rank: str) -> None:
    found, ranked = solve(fast(rank), RUNS, k=2), one_shot(rank, RUNS, 2)
    assert ranked.mask == Mask.of(8, [1, 2])
    assert found.mask == Mask.of(8, [5, 6]) == optimum(RUNS, SearchSpace.of_blocks(8), 2).mask
    assert found.outcome.best.mean < ranked.outcome.best.mean


@given(st.integers(0, 9999), st.integers(1, 4), st.sampled_from(RANKS))
def test_isolated_removals_are_those_of_one_shot(seed: int, k: int, rank: str) -> None:
    landscape = Pairwise.random(12, seed)
    ranked = one_shot(rank, landscape, k)
    assume(all(run.length == 1 for run in runs(ranked.mask)))
    found = solve(fast(rank), landscape, k=k)
    assert found.mask == ranked.mask
    assert found.evaluator.computed == ranked.evaluator.computed


@pytest.mark.parametrize("rank", RANKS)
def test_isolated_removals_are_those_of_one_shot_where_a_constraint_misleads_it(rank: str) -> None:
    # Taking block 1 first forbids 0 and 2, which are better together than 1 and 3.
    landscape = Additive(((0.25, 0.0, 0.25, 9.0, 10.0),))
    space = SearchSpace.of_blocks(5, constraint=no_neighbours)
    found = solve(fast(rank), landscape, k=2, space=space)
    assert found.mask == Mask.of(5, [1, 3])


def test_all_single_blocks_are_candidates_however_few_windows_are_measured() -> None:
    costs = (9.0, 0.125, 0.125, 9.0, 0.0625, 9.0, 0.25, 9.0)
    landscape = Pairwise(Additive((costs,)), {(1, 2): 4.0})
    assert one_shot("loss", landscape, 3).mask == Mask.of(8, [1, 2, 4])
    assert solve(fast(windows=1), landscape, k=3).mask == Mask.of(8, [1, 4, 6])


@given(st.integers(0, 9999), st.integers(1, 8), st.sampled_from(RANKS), st.integers(1, 4))
def test_never_worse_than_one_shot_and_ends_by_itself(
    seed: int, k: int, rank: str, windows: int
) -> None:
    landscape = Pairwise.random(9, seed)
    found = solve(fast(rank, windows=windows, rounds=100), landscape, k=k)
    assert found.outcome.best.mean <= one_shot(rank, landscape, k).outcome.best.mean
    longer = solve(fast(rank, windows=windows, rounds=200), landscape, k=k)
    assert longer.evaluator.asked == found.evaluator.asked


@given(st.integers(0, 999), st.integers(2, 5), st.sampled_from([-1024.0, 0.0, 1024.0]))
def test_the_level_of_the_losses_does_not_matter(seed: int, k: int, base: float) -> None:
    """Sums over few and over many windows are comparable, as they are relative to dense."""
    usual = Pairwise.random(8, seed)
    shifted = Pairwise(Additive(usual.additive.costs, base), usual.couplings)
    first, second = (solve(fast(), landscape, k=k) for landscape in (usual, shifted))
    assert first.evaluator.asked == second.evaluator.asked
    assert first.mask == second.mask


def test_many_cheap_windows_are_chosen_over_one_dear_one() -> None:
    # The run 1-3 costs about 3; single blocks that cost about 0.1 do not interact across gaps.
    costs = (9.0, 0.0625, 0.0625, 0.0625, 9.0, 0.125, 9.0, 0.03125, 9.0)
    landscape = Pairwise(Additive((costs,)), dict.fromkeys(combinations((1, 2, 3), 2), 1.0))
    ranked = one_shot("loss", landscape, 4).mask
    assert ranked == Mask.of(9, [1, 2, 3, 7])
    assert (
        solve(fast(), landscape, k=4).mask == optimum(landscape, SearchSpace.of_blocks(9), 4).mask
    )


def test_a_run_that_was_estimated_is_measured_in_the_next_round() -> None:
    # One-shot finds 0-2 and 4. The single blocks of 0, 1, 4 and 5 add up to less than 0-2 costs,
    # and so make runs of two that nobody has measured.
    costs = (0.0, 0.0, 0.0, 9.0, 0.0, 0.5, 9.0, 9.0)
    landscape = Pairwise(Additive((costs,)), {(0, 2): 4.0})
    solved = solve(fast(), landscape, k=4)
    assert [sets[0] for sets in sets_asked(solved, 4)][:2] == [
        Mask.of(8, [0, 1, 2, 4]),
        Mask.of(8, [0, 1, 4, 5]),
    ]
    assert {Mask.of(8, [0, 1]), Mask.of(8, [4, 5])} <= solved.asked
    assert solved.mask == Mask.of(8, [0, 1, 4, 5])


@given(st.integers(0, 999), st.integers(1, 4), st.integers(2, 5))
def test_measures_no_more_windows_than_it_says(seed: int, windows: int, k: int) -> None:
    solved = solve(fast(windows=windows), Pairwise.random(9, seed), k=k)
    ranked, *rounds = solved.evaluator.asked[2:-1]
    assert len(ranked) == 9
    for batch in rounds:
        own = runs(batch[0])
        for length in range(2, k):
            measured = [m for m in batch[1:] if runs(m)[0].length == length]
            assert len(measured) <= windows + sum(run.length == length for run in own)
            assert all(len(runs(m)) == 1 for m in measured)


@pytest.mark.parametrize("rounds", [1, 2])
def test_rounds_bound_the_sets_that_are_seen(rounds: int) -> None:
    for seed in range(30):
        solved = solve(fast("taylor", rounds=rounds), Pairwise.random(9, seed), k=4)
        assert 1 <= solved.outcome.evaluations <= rounds + 1
        assert all(len(batch) == 1 for batch in sets_asked(solved, 4))


def test_the_windows_with_the_least_single_scores_are_measured() -> None:
    solved = solve(fast(windows=1), RUNS, k=2)
    assert Mask.of(8, [5, 6]) not in solved.asked
    assert solved.mask == Mask.of(8, [1, 2])


def test_the_runs_of_the_set_are_measured_whatever_their_rank() -> None:
    # 1-2 is the one window of two that is measured by rank; 4-5 is dear, which only shows as a run.
    costs = (9.0, 0.0, 0.0, 9.0, 0.125, 0.125, 9.0, 0.0625, 9.0, 0.25, 9.0)
    landscape = Pairwise(Additive((costs,)), {(4, 5): 4.0})
    solved = solve(fast(windows=1), landscape, k=5)
    assert one_shot("loss", landscape, 5).mask == Mask.of(11, [1, 2, 4, 5, 7])
    assert solved.mask == Mask.of(11, [1, 2, 4, 7, 9])


@pytest.mark.parametrize("rank", RANKS)
def test_windows_that_may_not_be_removed_are_no_candidates(rank: str) -> None:
    for space in (
        SearchSpace.of_blocks(8, [5]),
        SearchSpace.of_blocks(8, constraint=lambda m: not {5, 6} <= set(m.blocks)),
    ):
        solved = solve(fast(rank), RUNS, k=2, space=space)
        assert Mask.of(8, [5, 6]) not in solved.asked
        assert space.is_valid(solved.mask)


@pytest.mark.parametrize("rank", RANKS)
def test_windows_that_may_not_go_together_leave_the_last_set(rank: str) -> None:
    # Windows 0-1 and 6-7 are each allowed and the best two, but not together.
    costs = (0.0, 0.0, 9.0, 0.0, 0.0, 9.0, 0.5, 0.5, 9.0)
    landscape = Pairwise(Additive((costs,)), {(3, 4): 4.0, (6, 7): -1.0})
    free = solve(fast(rank), landscape, k=4)
    assert free.mask == Mask.of(9, [0, 1, 6, 7])
    space = SearchSpace.of_blocks(9, constraint=lambda m: not {0, 7} <= set(m.blocks))
    assert solve(fast(rank), landscape, k=4, space=space).mask == Mask.of(9, [0, 1, 3, 4])


def test_units_that_are_not_blocks_are_refused() -> None:
    space = SearchSpace(4, tuple(frozenset({Site(i, Part.MLP)}) for i in range(4)))
    with pytest.raises(UsageError, match="fast_block_select removes runs of whole blocks"):
        solve(fast(), Additive.random(4), k=2, space=space)


def test_a_constraint_that_leaves_too_few_is_reported() -> None:
    space = SearchSpace.of_blocks(6, constraint=lambda m: len(m) < 3)
    with pytest.raises(UsageError, match="no 4 units can be removed together"):
        solve(fast(), Additive.random(6), k=4, space=space)
