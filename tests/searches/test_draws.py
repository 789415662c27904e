from itertools import cycle

from hypothesis import given
from hypothesis import strategies as st

from shoal.core.mask import Mask
from shoal.searches.draws import TRIES, fresh

NUMBERS = st.lists(st.none() | st.integers(0, 9), min_size=1, max_size=20)


def mask_of(number: int | None) -> Mask | None:
    return None if number is None else Mask.of(10, [number])


@given(NUMBERS, st.integers(0, 12), st.sets(st.integers(0, 9)))
def test_draws_distinct_new_masks_in_order(
    numbers: list[int | None], wanted: int, known: set[int]
) -> None:
    stream = cycle(numbers)
    drawn = fresh(lambda: mask_of(next(stream)), wanted, {Mask.of(10, [i]) for i in known})
    new = [i for i in dict.fromkeys(numbers) if i is not None and i not in known]
    # One turn of the wheel is seen whole where a mask is wanted.
    assert drawn == [mask_of(i) for i in new][:wanted]


def test_gives_up_in_the_end_and_not_before_its_patience() -> None:
    calls: list[int] = []

    def vain() -> None:
        calls.append(1)

    assert fresh(vain, 3) == []
    assert len(calls) == 3 * TRIES
    assert fresh(vain, 3, patience=500) == []
    assert len(calls) == 3 * TRIES + 500


def test_stops_as_soon_as_it_has_enough() -> None:
    stream = iter([Mask.of(10, [1]), Mask.of(10, [1]), Mask.of(10, [2])])
    assert len(fresh(lambda: next(stream), 2, patience=500)) == 2
