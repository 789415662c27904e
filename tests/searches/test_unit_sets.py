import numpy as np

from shoal.core.mask import Mask, Site
from shoal.core.space import SearchSpace
from shoal.searches.unit_sets import indicators, mask_of, swapped, units_of
from shoal.testing.searches import no_neighbours


def test_indices_skip_protected_units() -> None:
    space = SearchSpace.of_blocks(6, protect=(0, 2))
    mask = mask_of(space, [0, 3])
    assert mask == Mask.of(6, [1, 5])
    assert units_of(space, mask) == (0, 3)


def test_no_mask_where_the_constraint_forbids_it() -> None:
    space = SearchSpace.of_blocks(6, constraint=no_neighbours)
    assert mask_of(space, [1, 2]) is None
    assert mask_of(space, [1, 3]) == Mask.of(6, [1, 3])


def test_no_mask_where_nothing_would_stay() -> None:
    assert mask_of(SearchSpace.of_blocks(3), [0, 1, 2]) is None


def test_no_mask_of_units_that_overlap_or_complete_another() -> None:
    one, two, three = (frozenset({Site(i)}) for i in range(3))
    space = SearchSpace(4, (one, two, three, one | two))
    assert mask_of(space, [0, 3]) is None
    assert mask_of(space, [0, 1]) is None
    assert mask_of(space, [0, 2]) == Mask.of(4, [0, 2])


def test_indicators() -> None:
    assert indicators([(0, 2), (1, 2)], 3).tolist() == [[True, False, True], [False, True, True]]
    assert indicators([], 3).shape == (0, 3)


def test_swapped_gives_the_neighbours_of_the_space() -> None:
    space = SearchSpace.of_blocks(7)
    chosen = (1, 2, 5)
    mask = mask_of(space, chosen)
    assert mask is not None
    rows = [tuple(row) for row in swapped(chosen, 7).tolist()]
    assert rows == [units_of(space, m) for m in space.neighbours(mask)]


def test_nothing_to_swap_where_all_is_chosen() -> None:
    assert swapped((0, 1), 2).shape == (0, 2)
    assert swapped((0, 1), 2).dtype == np.intp
