from itertools import combinations

import numpy as np
import pytest

from shoal.core.errors import UsageError
from shoal.core.layout import fuses
from shoal.core.mask import Mask, Part, Site
from shoal.core.space import SearchSpace
from shoal.core.units import Granularity, half_step, units_of_granularity

DEPTH = 4


def space(name: str, **options: object) -> SearchSpace:
    return SearchSpace(DEPTH, units_of_granularity(Granularity(name), DEPTH, **options))  # type: ignore[arg-type]


def all_masks() -> list[Mask]:
    """Every mask of sub-layers that leaves something."""
    sites = [s for i in range(DEPTH) for s in Site(i).sublayers]
    sets = (c for n in range(len(sites)) for c in combinations(sites, n))
    return [Mask(DEPTH, frozenset(c)) for c in sets]


def test_half_is_everything_that_fuses() -> None:
    half = space("half")
    found = {m for k in range(DEPTH) for m in half.masks(k)} | {half.dense}
    assert found == {m for m in all_masks() if fuses(m)}
    for k in range(1, DEPTH):
        masks = list(half.masks(k))
        assert len(masks) == half.size(k) == len(set(masks))
        assert all(len(m.sublayers) == 2 * k == 2 * len(half.removed_units(m)) for m in masks)


def test_half_holds_the_blocks() -> None:
    half, blocks = space("half"), space("block")
    assert set(blocks.units) < set(half.units)
    assert len(half.units) == 2 * DEPTH - 1
    assert all(half.is_valid(m) for k in range(1, DEPTH) for m in blocks.masks(k))


def test_sub_layers_count_one_each() -> None:
    both = space("attn+mlp")
    for k in range(1, 2 * DEPTH):
        assert list(both.masks(k)) == sorted(
            (m for m in all_masks() if len(m.sublayers) == k),
            key=lambda m: sorted(m.places),
        )
    assert len(both.removed_units(Mask.of(DEPTH, [1]))) == 2


@pytest.mark.parametrize("name", ["half", "attn", "mlp", "attn+mlp"])
def test_extensions_neighbours_and_draws_stay_in_the_space(name: str) -> None:
    some, rng = space(name), np.random.default_rng(0)
    every = {k: set(some.masks(k)) for k in range(5)}
    for k in (1, 2, 3):
        for mask in every[k]:
            assert set(some.extensions(mask)) <= every[k + 1] | set(some.masks(k + 1))
            around = some.neighbours(mask)
            assert set(around) <= every[k] - {mask}
            assert all(mask in some.neighbours(m) for m in around)
        assert {some.sample(rng, k) for _ in range(40 * len(every[k]))} == every[k]


def test_a_swap_may_use_what_the_removed_unit_covered() -> None:
    half = space("half")
    mask = half.dense.without({Site(1)})
    assert half.dense.without(half_step(1)) in half.neighbours(mask)
    assert half.dense.without(half_step(0)) in half.neighbours(mask)


def test_protected_blocks_lose_nothing() -> None:
    for name in ("block", "half", "attn", "mlp", "attn+mlp", "mixed"):
        units = units_of_granularity(Granularity(name), DEPTH, [1])
        assert all(site.layer != 1 for unit in units for site in unit)


def test_fusable_pairs_sub_layers() -> None:
    for name in ("attn+mlp", "mixed", "half"):
        assert space(name, fusable=True).units == space("half").units
    for name in ("attn", "mlp"):
        with pytest.raises(UsageError, match="never does"):
            space(name, fusable=True)


def test_blocks_that_cannot_be_fused_have_no_half_step_between_them() -> None:
    units = space("half", can_fuse=lambda attn, mlp: (attn, mlp) != (1, 2)).units
    assert half_step(1) not in units
    assert half_step(0) in units


@pytest.mark.parametrize(
    ("name", "k", "reason"), [("half", 4, "largest number is 3"), ("attn", 5, "at most 4")]
)
def test_budgets_that_nothing_has(name: str, k: int, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        space(name).check_budget(k)


def test_parts() -> None:
    assert space("attn").units[2] == {Site(2, Part.ATTN)}
    assert space("mlp").units[2] == {Site(2, Part.MLP)}
