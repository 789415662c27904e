from itertools import combinations, pairwise
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.engine.trie import naive_passes, path, shared_passes, visiting_order, visits


@st.composite
def mask_sets(draw: st.DrawFn) -> list[Mask]:
    """Distinct masks of one model, in any order."""
    depth = draw(st.integers(1, 9))
    removed = st.frozensets(st.integers(0, depth - 1))
    chosen = draw(st.lists(removed, unique=True, max_size=20))
    return [Mask.of(depth, blocks) for blocks in chosen]


def prefixes(masks: list[Mask]) -> set[tuple[int, ...]]:
    """The distinct beginnings of the kept blocks: the nodes of the trie, without its root."""
    return {m.kept[:n] for m in masks for n in range(1, len(m.kept) + 1)}


def execute(masks: list[Mask]) -> tuple[dict[Mask, tuple[int, ...]], int, int]:
    """Run the plan, holding no state but those it says to keep.

    A state is represented by the blocks that made it. Returns each mask's output, the number of
    block passes, and the most states that waited at once besides the entry.
    """
    held: dict[int, tuple[int, ...]] = {0: ()}
    outputs: dict[Mask, tuple[int, ...]] = {}
    passes = most = 0
    for visit in visits(masks):
        start = max(place for place, state in enumerate(visit.path) if state in held)
        state = held[visit.path[start]]
        held = {name: s for name, s in held.items() if name in visit.keep}
        for place in range(start, len(visit.path)):
            if place > start:
                state = (*state, visit.mask.kept[place - 1])
                passes += 1
            if visit.path[place] in visit.keep:
                held[visit.path[place]] = state
        assert set(held) == visit.keep
        outputs[visit.mask] = state
        most = max(most, len(held.keys() - {0}))
        held[0] = ()
    return outputs, passes, most


@given(mask_sets())
def test_the_plan_runs_every_mask_with_the_fewest_passes(masks: list[Mask]) -> None:
    outputs, passes, _ = execute(masks)
    assert outputs == {m: m.kept for m in masks}
    assert passes == shared_passes(masks) == len(prefixes(masks)) <= naive_passes(masks)


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


@given(mask_sets())
def test_never_more_states_wait_than_blocks_are_removed(masks: list[Mask]) -> None:
    for visit in visits(masks):
        assert len(visit.keep) <= visit.mask.num_blocks


@pytest.mark.parametrize("depth", [2, 5, 12])
def test_single_removals_hold_one_state_and_share_half(depth: int) -> None:
    masks = list(SearchSpace.of_blocks(depth).masks(1))
    _, passes, most = execute(masks)
    assert most <= 1
    assert naive_passes(masks) == depth * (depth - 1)
    # Without the shared beginnings, block i's mask runs the depth - 1 - i blocks above it.
    assert passes == depth * (depth - 1) // 2 + depth - 1


def test_the_drawing_of_the_module() -> None:
    masks = [Mask.of(3, [b]) for b in range(3)]
    assert (naive_passes(masks), shared_passes(masks)) == (6, 5)
    assert [v.mask.blocks[0] for v in visits(masks)] == [0, 1, 2]
    assert [set(v.keep) for v in visits(masks)] == [{0}, {0b001}, set()]


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
        first = min(set(one.blocks) ^ set(other.blocks))
        assert first in one.blocks


@given(st.integers(1, 12), st.data())
def test_path_names_states_by_the_blocks_that_made_them(depth: int, data: st.DataObject) -> None:
    mask = Mask.of(depth, data.draw(st.sets(st.integers(0, depth - 1))))
    states = path(mask)
    assert states[0] == 0
    assert states[-1] == sum(1 << b for b in mask.kept)
    assert [a ^ b for a, b in pairwise(states)] == [1 << b for b in mask.kept]


def test_no_masks_and_the_dense_one() -> None:
    assert visits([]) == []
    assert shared_passes([]) == naive_passes([]) == 0
    assert shared_passes([Mask.dense(5)]) == naive_passes([Mask.dense(5)]) == 5
