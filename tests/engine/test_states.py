import torch
from hypothesis import given
from hypothesis import strategies as st

from shoal.engine.states import StateCache

UNIT = 4


def tensor(value: float = 0.0, size: int = 1) -> torch.Tensor:
    return torch.full((size,), value)


def held(cache: StateCache, *names: int) -> list[int]:
    return [n for n in names if n in cache._states]


def test_the_deepest_kept_state_is_found_with_its_place() -> None:
    cache = StateCache(10 * UNIT)
    cache.next_round()
    for name, value in ((1, 1.0), (3, 2.0), (8, 3.0)):
        cache.offer(name, tensor(value))
    found = cache.deepest((0, 1, 3, 7))
    assert found is not None
    place, state = found
    assert (place, state.item()) == (2, 2.0)
    assert cache.deepest((0, 2, 6)) is None


def test_nothing_is_kept_without_a_budget_and_nothing_too_large() -> None:
    for budget in (0, 2 * UNIT - 1):
        cache = StateCache(budget)
        cache.next_round()
        cache.offer(1, tensor(size=2))
        assert cache.deepest((0, 1)) is None


def test_states_of_a_round_do_not_chase_each_other() -> None:
    cache = StateCache(2 * UNIT)
    cache.next_round()
    for name in (1, 2, 3, 4):
        cache.offer(name, tensor())
    assert held(cache, 1, 2, 3, 4) == [1, 2]


def test_what_the_latest_round_did_not_use_goes_first() -> None:
    cache = StateCache(3 * UNIT)
    cache.next_round()
    for name in (1, 2, 3):
        cache.offer(name, tensor())
    cache.next_round()
    cache.deepest((0, 1))
    cache.deepest((0, 3))
    cache.offer(4, tensor())
    assert held(cache, 1, 2, 3, 4) == [1, 3, 4]
    cache.offer(5, tensor())
    assert held(cache, 1, 3, 4, 5) == [1, 3, 4]


def test_the_longest_unused_go_first() -> None:
    cache = StateCache(2 * UNIT)
    for name in (2, 1):
        cache.next_round()
        cache.offer(name, tensor())
    cache.next_round()
    cache.offer(3, tensor())
    assert held(cache, 1, 2, 3) == [1, 3]


def test_the_first_offer_of_a_state_stays() -> None:
    cache = StateCache(2 * UNIT)
    cache.next_round()
    cache.offer(1, tensor(1.0))
    cache.offer(1, tensor(2.0))
    found = cache.deepest((0, 1))
    assert found is not None
    assert found[1].item() == 1.0
    cache.offer(2, tensor())
    assert held(cache, 1, 2) == [1, 2]


actions = st.one_of(
    st.tuples(st.just("round"), st.just(0), st.just(0)),
    st.tuples(st.just("offer"), st.integers(0, 9), st.integers(1, 4)),
    st.tuples(st.just("ask"), st.integers(0, 9), st.just(0)),
)


@given(st.integers(0, 10), st.lists(actions, max_size=60))
def test_the_budget_holds_and_states_in_use_stay(
    budget: int, done: list[tuple[str, int, int]]
) -> None:
    cache = StateCache(budget * UNIT)
    used: set[int] = set()
    for action, name, size in done:
        if action == "round":
            cache.next_round()
            used = set()
        elif action == "offer":
            before = set(cache._states)
            cache.offer(name, tensor(size=size))
            if name in cache._states and name not in before:
                used.add(name)
        elif cache.deepest((name,)) is not None:
            used.add(name)
        kept = sum(s.numel() * s.element_size() for s in cache._states.values())
        assert kept == cache._bytes <= cache.budget
        assert used <= set(cache._states) == set(cache._used)
