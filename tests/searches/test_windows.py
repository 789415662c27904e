from collections.abc import Iterator, Mapping
from itertools import combinations, pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.budget import WeightBudget
from shoal.core.errors import UsageError
from shoal.core.mask import Mask, Part, Site
from shoal.core.space import SearchSpace
from shoal.searches.windows import (
    Score,
    Window,
    best_runs,
    mask_of,
    require_blocks,
    run_scores,
    runs,
    valid_windows,
)

DEPTH = 7
UNREACHED = (inf, inf)
# Small whole numbers: sums are exact, and ties are many.
numbers = st.integers(-2, 4).map(float)
windows = st.builds(Window, st.integers(0, DEPTH - 1), st.integers(1, 4)).filter(
    lambda w: w.start + w.length <= DEPTH
)
scores = st.dictionaries(windows, st.tuples(st.one_of(numbers, st.just(inf)), numbers))


def total(parts: list[Score]) -> Score:
    return sum(p[0] for p in parts), sum(p[1] for p in parts)


def tilings(run: Window, lengths: set[int]) -> Iterator[list[Window]]:
    if not run.length:
        yield []
    for length in lengths:
        if length <= run.length:
            for others in tilings(Window(run.start + length, run.length - length), lengths):
                yield [Window(run.start, length), *others]


def run_by_hand(measured: Mapping[Window, Score], lengths: set[int], run: Window) -> Score:
    """A run's score by looking at all its tilings."""
    ways = [t for t in tilings(run, lengths) if all(w in measured for w in t)]
    if ways and run in measured:
        return measured[run]
    return min((total([measured[w] for w in t]) for t in ways), default=UNREACHED)


@given(st.sets(st.integers(0, DEPTH - 1)))
def test_runs_are_maximal_and_make_the_mask(blocks: set[int]) -> None:
    space, mask = SearchSpace.of_blocks(DEPTH), Mask.of(DEPTH, blocks)
    found = runs(mask)
    assert mask_of(space, found) == mask
    assert all(b.start > a.start + a.length for a, b in pairwise(found))


def test_a_window_of_n_blocks_is_n_blocks_and_the_first_block_is_allowed() -> None:
    space = SearchSpace.of_blocks(5)
    assert [tuple(w.blocks) for w in valid_windows(space, 3)] == [(0, 1, 2), (1, 2, 3), (2, 3, 4)]
    assert [w.start for w in valid_windows(space, 1)] == [0, 1, 2, 3, 4]
    assert valid_windows(space, 5) == []  # one block must stay


def test_windows_with_protected_blocks_or_against_the_constraint_are_not_valid() -> None:
    space = SearchSpace.of_blocks(7, [2], constraint=lambda m: 5 not in m.blocks)
    assert [w.start for w in valid_windows(space, 2)] == [0, 3]


@pytest.mark.parametrize(
    "units",
    [
        [{Site(0)}, {Site(1, Part.ATTN)}],
        [{Site(0), Site(1)}, {Site(2)}],
    ],
)
def test_units_that_are_not_single_blocks_are_refused(units: list[set[Site]]) -> None:
    space = SearchSpace(4, tuple(map(frozenset, units)))
    with pytest.raises(UsageError, match="mine removes runs of whole blocks"):
        require_blocks(space, "mine")
    require_blocks(SearchSpace.of_blocks(4, [1]), "mine")


@given(scores, st.sets(st.integers(1, 4)), st.integers(1, DEPTH))
def test_the_score_of_a_run_is_its_own_or_its_best_tiling(
    measured: dict[Window, Score], lengths: set[int], longest: int
) -> None:
    found = run_scores(measured, lengths, longest)
    for length in range(1, DEPTH + 1):
        for start in range(DEPTH - length + 1):
            run = Window(start, length)
            expected = run_by_hand(measured, lengths, run)
            if length > longest:
                assert run not in found
            elif expected[0] < inf:
                assert found[run] == expected
            else:
                assert found.get(run, UNREACHED)[0] == inf


@given(scores, st.integers(1, DEPTH))
def test_the_best_runs_are_those_of_brute_force(
    candidates: dict[Window, Score], wanted: int
) -> None:
    """All sets of blocks in lexicographic order; the first of equals."""
    best: tuple[Score, tuple[int, ...]] = (UNREACHED, ())
    for blocks in combinations(range(DEPTH), wanted):
        own = [candidates.get(run, UNREACHED) for run in runs(Mask.of(DEPTH, blocks))]
        if total(own)[0] < inf and total(own) < best[0]:
            best = (total(own), blocks)
    found = best_runs(candidates, wanted)
    if best[0][0] == inf:
        assert found is None
    else:
        assert found is not None
        assert tuple(b for run in found for b in run.blocks) == best[1]
        assert list(found) == runs(Mask.of(DEPTH, best[1]))


def test_runs_that_touch_are_not_chosen_in_place_of_the_run_they_make() -> None:
    cheap, dear = (1.0, 0.0), (9.0, 0.0)
    scores = {Window(1, 1): cheap, Window(2, 1): cheap, Window(4, 1): (3.0, 0.0)}
    assert best_runs({**scores, Window(1, 2): dear}, 2) == (Window(1, 1), Window(4, 1))
    assert best_runs(run_scores(scores, {1}, 2), 2) == (Window(1, 2),)


def test_nothing_to_choose_from() -> None:
    assert best_runs({}, 2) is None
    assert best_runs({Window(0, 3): (0.0, 0.0)}, 2) is None
    assert best_runs({Window(0, 2): (inf, 0.0)}, 2) is None
    assert run_scores({}, {1, 2}, 3) == {}


def test_a_weight_is_refused() -> None:
    budget = WeightBudget((1.0,) * 8, 2.0)
    with pytest.raises(
        UsageError, match="mine removes runs of a number of blocks and cannot remove 2"
    ):
        require_blocks(SearchSpace.of_blocks(4), "mine", budget)
