from collections.abc import Callable
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.errors import UsageError
from shoal.core.mask import Mask, Part, Site
from shoal.core.space import Constraint, SearchSpace


def even_sum(mask: Mask) -> bool:
    return sum(mask.blocks) % 2 == 0


def no_neighbours(mask: Mask) -> bool:
    return all(b - a > 1 for a, b in pairwise(mask.blocks))


@st.composite
def spaces(draw: st.DrawFn) -> SearchSpace:
    depth = draw(st.integers(2, 7))
    protect = draw(st.sets(st.integers(0, depth - 1), max_size=depth - 1))
    rule: Constraint | None = draw(st.sampled_from([None, even_sum, no_neighbours]))
    return SearchSpace.of_blocks(depth, protect, rule)


def everything(space: SearchSpace) -> list[Mask]:
    """All masks of whole blocks, valid in the space or not, in lexicographic order per size."""
    blocks = range(space.depth)
    sets = (c for k in range(space.depth + 1) for c in combinations(blocks, k))
    return [Mask.of(space.depth, c) for c in sets]


def valid(space: SearchSpace) -> list[Mask]:
    units = {next(iter(u)).layer for u in space.units}
    rule: Callable[[Mask], bool] = space.constraint or (lambda _: True)
    return [
        m
        for m in everything(space)
        if set(m.blocks) <= units and m.num_blocks < m.depth and rule(m)
    ]


@given(spaces())
def test_is_valid_is_the_definition(space: SearchSpace) -> None:
    assert [m for m in everything(space) if space.is_valid(m)] == valid(space)


@given(spaces())
def test_masks_are_all_valid_masks_in_lexicographic_order(space: SearchSpace) -> None:
    for k in range(1, len(space.units) + 1):
        found = list(space.masks(k))
        assert found == [m for m in valid(space) if m.num_blocks == k]
        assert len(found) <= space.size(k)
        if space.constraint is None and k < space.depth:
            assert len(found) == space.size(k)


@given(spaces(), st.data())
def test_extensions_are_the_valid_masks_with_one_unit_more(
    space: SearchSpace, data: st.DataObject
) -> None:
    mask = data.draw(st.sampled_from(valid(space) or [space.dense]))
    expected = [m for m in valid(space) if m.removed > mask.removed and len(m) == len(mask) + 1]
    found = space.extensions(mask)
    assert set(found) == set(expected)
    assert len(found) == len(expected)
    added = [min(m.removed - mask.removed) for m in found]
    assert added == sorted(added)


@given(spaces(), st.data())
def test_neighbours_are_the_valid_masks_with_one_unit_swapped(
    space: SearchSpace, data: st.DataObject
) -> None:
    mask = data.draw(st.sampled_from(valid(space) or [space.dense]))
    found = space.neighbours(mask)
    assert set(found) == {
        m for m in valid(space) if len(m) == len(mask) and len(m.removed - mask.removed) == 1
    }
    assert len(found) == len(set(found))
    if space.is_valid(mask):
        assert all(mask in space.neighbours(m) for m in found)


@given(spaces(), st.integers(0, 99))
def test_sample_draws_valid_masks_of_k_units(space: SearchSpace, seed: int) -> None:
    for k in range(1, min(len(space.units), space.depth - 1) + 1):
        allowed = set(space.masks(k))
        if not allowed:
            continue
        mask = space.sample(np.random.default_rng(seed), k)
        assert mask in allowed
        assert mask == space.sample(np.random.default_rng(seed), k)


def test_sample_is_uniform_over_the_masks() -> None:
    space = SearchSpace.of_blocks(6, [0], no_neighbours)
    rng = np.random.default_rng(0)
    drawn = [space.sample(rng, 2) for _ in range(3000)]
    counts = np.array([drawn.count(m) for m in space.masks(2)])
    expected = 3000 / len(counts)
    assert counts.sum() == 3000
    assert (abs(counts - expected) < 5 * expected**0.5).all()


def test_sample_follows_its_weights() -> None:
    space = SearchSpace.of_blocks(4)
    rng = np.random.default_rng(0)
    assert {space.sample(rng, 2, [0, 3, 0, 1]) for _ in range(20)} == {Mask.of(4, [1, 3])}
    drawn = [space.sample(rng, 1, [0, 3, 0, 1]).blocks[0] for _ in range(2000)]
    assert drawn.count(1) / 2000 == pytest.approx(0.75, abs=0.05)


def test_sample_gives_up_where_no_mask_is_valid() -> None:
    space = SearchSpace.of_blocks(4, constraint=lambda m: len(m) != 2)
    with pytest.raises(UsageError, match="no valid mask of 2 units"):
        space.sample(np.random.default_rng(0), 2)


@given(st.integers(2, 5), st.data())
def test_sub_layers_are_units_like_blocks(depth: int, data: st.DataObject) -> None:
    parts = (Part.ATTN, Part.MLP)
    units = tuple(frozenset({Site(i, part)}) for i in range(depth) for part in parts)
    space = SearchSpace(depth, units)
    for k in (1, 2):
        found = list(space.masks(k))
        assert len(set(found)) == len(found) == space.size(k)
    mask = data.draw(st.sampled_from(list(space.masks(2))))
    assert len(space.extensions(mask)) == 2 * depth - 2
    assert len(space.neighbours(mask)) == 2 * (2 * depth - 2)
    assert space.is_valid(Mask.of(depth, [0])) == (depth > 1)


@given(spaces(), st.data())
def test_removed_and_free_units_part_the_space(space: SearchSpace, data: st.DataObject) -> None:
    mask = data.draw(st.sampled_from(valid(space) or [space.dense]))
    removed, free = space.removed_units(mask), space.free_units(mask)
    assert sorted(removed + free, key=min) == list(space.units)
    assert frozenset().union(*removed, frozenset()) == mask.removed


def test_masks_of_another_model_are_not_valid() -> None:
    assert not SearchSpace.of_blocks(4).is_valid(Mask.of(5, [1]))


@pytest.mark.parametrize(
    ("protect", "k", "reason"),
    [
        ((), 0, "smallest number is 1"),
        ((), -2, "smallest number is 1"),
        ((), 6, "largest number is 5"),
        ((0, 5), 5, "2 of 6 are protected, which leaves 4"),
    ],
)
def test_budget_that_no_mask_can_have(protect: tuple[int, ...], k: int, reason: str) -> None:
    space = SearchSpace.of_blocks(6, protect)
    with pytest.raises(UsageError, match=reason):
        space.check_budget(k)
    with pytest.raises(UsageError, match=reason):
        space.sample(np.random.default_rng(0), k)


def test_budget_that_some_mask_has() -> None:
    for k in range(1, 5):
        SearchSpace.of_blocks(6, [0, 5]).check_budget(k)


@pytest.mark.parametrize("index", [-1, 6])
def test_protected_blocks_exist(index: int) -> None:
    with pytest.raises(UsageError, match=f"cannot protect block {index}: .* 0 to 5"):
        SearchSpace.of_blocks(6, [0, index])
