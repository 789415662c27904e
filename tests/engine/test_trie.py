from itertools import combinations, pairwise
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.mask import Mask, Site
from shoal.core.space import SearchSpace
from shoal.core.units import Granularity, units_of_granularity
from shoal.engine.trie import (
    halved_by,
    naive_passes,
    passes,
    shared_passes,
    steps,
    visiting_order,
    visits,
)


@st.composite
def block_sets(draw: st.DrawFn) -> list[Mask]:
    """Distinct masks of whole blocks of one model, in any order."""
    depth = draw(st.integers(1, 9))
    removed = st.frozensets(st.integers(0, depth - 1))
    chosen = draw(st.lists(removed, unique=True, max_size=20))
    return [Mask.of(depth, blocks) for blocks in chosen]


@st.composite
def part_sets(draw: st.DrawFn) -> list[Mask]:
    """Distinct masks of blocks and sub-layers of one model, in any order."""
    depth = draw(st.integers(1, 5))
    places = [site for i in range(depth) for site in Site(i).sublayers]
    removed = st.frozensets(st.sampled_from(places))
    chosen = draw(st.lists(removed, unique=True, max_size=20))
    return [Mask(depth, sites) for sites in chosen]


def mask_sets() -> st.SearchStrategy[list[Mask]]:
    return block_sets() | part_sets()


Ran = tuple[Site, ...]
"""The sub-layers that made a state."""


def rest(mask: Mask) -> Ran:
    """What a mask keeps, in order."""
    return tuple(s for i in mask.kept for s in Site(i).sublayers if s not in mask.sublayers)


def execute(
    masks: list[Mask], whole: frozenset[int] = frozenset()
) -> tuple[dict[Mask, Ran], float, int]:
    """Run the plan, holding no state but those it says to keep.

    A state is represented by what made it. Returns each mask's output, the number of block passes,
    and the most states that waited at once besides the entry.
    """
    held: dict[int, Ran] = {0: ()}
    outputs: dict[Mask, Ran] = {}
    done, most = 0.0, 0
    for visit in visits(masks, whole):
        start = max(place for place, state in enumerate(visit.path) if state in held)
        state = held[visit.path[start]]
        held = {name: s for name, s in held.items() if name in visit.keep}
        if visit.path[start] in visit.keep:
            held[visit.path[start]] = state
        for name, site in visit.steps[start:]:
            state = (*state, *site.sublayers)
            done += passes(site)
            if name in visit.keep:
                held[name] = state
        assert set(held) == visit.keep
        outputs[visit.mask] = state
        most = max(most, len(held.keys() - {0}))
        held[0] = ()
    return outputs, done, most


@given(mask_sets())
def test_the_plan_runs_every_mask_with_the_fewest_passes(masks: list[Mask]) -> None:
    outputs, done, _ = execute(masks)
    assert outputs == {m: rest(m) for m in masks}
    assert done == shared_passes(masks) <= naive_passes(masks)


@given(block_sets())
def test_whole_blocks_take_a_pass_per_distinct_prefix(masks: list[Mask]) -> None:
    prefixes = {m.kept[:n] for m in masks for n in range(1, len(m.kept) + 1)}
    assert shared_passes(masks) == len(prefixes)


@given(part_sets())
def test_halves_take_half_a_pass_per_distinct_prefix(masks: list[Mask]) -> None:
    halved = halved_by(masks)
    prefixes = {
        rest(m)[:n]: rest(m)[n - 1]
        for m in masks
        for n in range(1, len(rest(m)) + 1)
        # No state is held inside a block that every mask keeps or removes whole.
        if n == len(rest(m)) or rest(m)[n - 1].layer in halved or rest(m)[n - 1].position % 2
    }
    costs = [0.5 if last.layer in halved else 1.0 for last in prefixes.values()]
    assert shared_passes(masks) == sum(costs)


@given(part_sets())
def test_blocks_that_cannot_be_halved_are_run_in_one_pass(masks: list[Mask]) -> None:
    every = frozenset(range(5))
    outputs, done, _ = execute(masks, every)
    assert outputs == {m: rest(m) for m in masks}
    assert done <= naive_passes(masks)
    for visit in visits(masks, every):
        assert len(visit.steps) == len(visit.mask.kept)


def test_half_steps_cost_about_what_blocks_do() -> None:
    depth = 12
    half = SearchSpace(depth, units_of_granularity(Granularity.HALF, depth))
    masks = list(half.masks(1))
    assert len(masks) == 2 * depth - 1
    assert naive_passes(masks) == (2 * depth - 1) * (depth - 1)
    assert shared_passes(masks) < 0.6 * naive_passes(masks)


@given(mask_sets())
def test_a_start_state_is_always_at_hand(masks: list[Mask]) -> None:
    """Each mask starts where it leaves the one before it, from a state that was kept."""
    planned = visits(masks)
    for before, now in pairwise(planned):
        shared = [s for s in now.path if s in before.path]
        assert shared == list(now.path[: len(shared)])
        assert shared[-1] in before.keep
    if planned:
        assert planned[-1].keep == frozenset()


@given(mask_sets())
def test_no_state_waits_in_vain(masks: list[Mask]) -> None:
    planned = visits(masks)
    for i, visit in enumerate(planned):
        assert visit.keep <= set(visit.path)
        for state in visit.keep:
            starts = (
                next(s for s in reversed(b.path) if s in a.path)
                for a, b in zip(planned[i:], planned[i + 1 :], strict=False)
            )
            assert state in starts


@given(block_sets())
def test_never_more_states_wait_than_blocks_are_removed(masks: list[Mask]) -> None:
    for visit in visits(masks):
        assert len(visit.keep) <= visit.mask.num_blocks


@pytest.mark.parametrize("depth", [2, 5, 12])
def test_single_removals_hold_one_state_and_share_half(depth: int) -> None:
    masks = list(SearchSpace.of_blocks(depth).masks(1))
    _, done, most = execute(masks)
    assert most <= 1
    assert naive_passes(masks) == depth * (depth - 1)
    # Without the shared beginnings, block i's mask runs the depth - 1 - i blocks above it.
    assert done == depth * (depth - 1) // 2 + depth - 1


def test_the_drawing_of_the_module() -> None:
    masks = [Mask.of(3, [b]) for b in range(3)]
    assert (naive_passes(masks), shared_passes(masks)) == (6, 5)
    assert [v.mask.blocks[0] for v in visits(masks)] == [0, 1, 2]
    assert [set(v.keep) for v in visits(masks)] == [{0}, {0b000011}, set()]


def test_all_masks_of_k_share_every_prefix() -> None:
    masks = [Mask.of(8, c) for c in combinations(range(8), 3)]
    # A prefix of n kept blocks ends at block n + r - 1 where r of the 3 were removed before it.
    expected = sum(comb(n + r - 1, r) for n in range(1, 6) for r in range(4))
    assert shared_passes(masks) == expected


@given(mask_sets(), st.randoms(use_true_random=False))
def test_the_order_of_the_masks_does_not_matter(masks: list[Mask], random: object) -> None:
    shuffled = list(masks)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert visits(shuffled) == visits(masks)


@given(mask_sets())
def test_removed_blocks_are_visited_before_kept_ones(masks: list[Mask]) -> None:
    order = visiting_order(masks)
    assert sorted(map(str, order)) == sorted(map(str, masks))
    for one, other in pairwise(order):
        assert min(one.places ^ other.places) in one.places


@given(part_sets(), st.sets(st.integers(0, 4)))
def test_states_are_named_by_what_made_them(masks: list[Mask], halved: set[int]) -> None:
    for mask in masks:
        found = steps(mask, frozenset(halved))
        ran = [s for _, site in found for s in site.sublayers]
        assert tuple(ran) == rest(mask)
        names = [0, *(state for state, _ in found)]
        for (before, now), (_, site) in zip(pairwise(names), found, strict=True):
            assert now ^ before == sum(1 << s.position for s in site.sublayers)


def test_no_masks_and_the_dense_one() -> None:
    assert visits([]) == []
    assert shared_passes([]) == naive_passes([]) == 0
    assert shared_passes([Mask.dense(5)]) == naive_passes([Mask.dense(5)]) == 5
