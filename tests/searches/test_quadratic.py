import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.searches.quadratic import Quadratic, anneal, anneal_lowest, closure, enumerate_lowest
from shoal.searches.unit_sets import UnitSet

SIZES = [(n, k) for n in range(2, 17) for k in range(1, n)]


def random_model(units: int, seed: int) -> Quadratic:
    rng = np.random.default_rng([units, seed])
    upper = np.triu(rng.normal(size=(units, units)), 1)
    return Quadratic(rng.normal(size=units), upper + upper.T)


def starts(model: Quadratic, k: int, runs: int, seed: int = 0) -> list[UnitSet]:
    rng = np.random.default_rng(seed)
    return [tuple(sorted(rng.choice(model.units, k, replace=False).tolist())) for _ in range(runs)]


def by_hand(model: Quadratic, state: UnitSet) -> float:
    pairs = itertools.combinations(state, 2)
    return float(sum(model.linear[i] for i in state) + sum(model.couplings[i, j] for i, j in pairs))


def lowest_by_hand(model: Quadratic, k: int, count: int) -> list[UnitSet]:
    states = itertools.combinations(range(model.units), k)
    return sorted(states, key=lambda state: by_hand(model, state))[:count]


@pytest.mark.parametrize(("units", "k"), [(1, 1), (5, 2), (8, 3), (8, 7), (9, 9)])
def test_enumeration_equals_the_loops_written_by_hand(units: int, k: int) -> None:
    model = random_model(units, 0)
    found = enumerate_lowest(model, k, 20)
    assert found == lowest_by_hand(model, k, 20)
    assert [model.energy(s) for s in found] == pytest.approx([by_hand(model, s) for s in found])


def test_enumeration_in_pieces_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(12, 1)
    whole = enumerate_lowest(model, 5, 30)
    monkeypatch.setattr("shoal.searches.quadratic.GATHERED", 1000)
    assert enumerate_lowest(model, 5, 30) == whole


def test_enumeration_ties_go_to_the_first() -> None:
    flat = Quadratic(np.zeros(5), np.zeros((5, 5)))
    assert enumerate_lowest(flat, 2, 3) == [(0, 1), (0, 2), (0, 3)]


def test_refused_sets_are_no_states() -> None:
    model = random_model(9, 2)
    odd = [s for s in lowest_by_hand(model, 4, 126) if sum(s) % 2]
    assert enumerate_lowest(model, 4, 8, lambda s: sum(s) % 2 == 1) == odd[:8]


@pytest.mark.parametrize(("units", "k"), SIZES)
def test_annealing_finds_the_ground_state(units: int, k: int) -> None:
    model = random_model(units, 3)
    found = anneal_lowest(model, starts(model, k, 32), 1, np.random.default_rng(0))
    assert found == enumerate_lowest(model, k, 1)


@pytest.mark.parametrize("seed", range(10))
def test_annealing_finds_the_lowest_states(seed: int) -> None:
    model = random_model(12, seed)
    found = anneal_lowest(model, starts(model, 5, 32), 20, np.random.default_rng(seed))
    assert found == enumerate_lowest(model, 5, 20)


def test_annealing_itself_reaches_what_descent_does_not() -> None:
    # The two good sets are as far apart as can be, and every swap out of the worse one is uphill.
    couplings = np.zeros((8, 8))
    couplings[:4, :4], couplings[4:, 4:] = -1.0, -1.1
    np.fill_diagonal(couplings, 0.0)
    model = Quadratic(np.zeros(8), couplings)
    assert closure(model, [(0, 1, 2, 3)], 1) == [(0, 1, 2, 3)]
    found = anneal_lowest(model, [(0, 1, 2, 3)] * 32, 1, np.random.default_rng(0))
    assert found == [(4, 5, 6, 7)]


def test_annealing_stays_within_accepted_sets() -> None:
    model, asked = random_model(12, 4), set()

    def accept(state: UnitSet) -> bool:
        asked.add(state)
        return all(b - a > 1 for a, b in itertools.pairwise(state))

    begin = [s for s in itertools.combinations(range(12), 4) if accept(s)][:32]
    found = anneal_lowest(model, begin, 10, np.random.default_rng(0), accept)
    assert found == enumerate_lowest(model, 4, 10, accept)
    assert all(len(state) == 4 for state in asked)


def test_annealing_follows_from_the_seed() -> None:
    # Without neighbours to look at: a flat part in which the runs end anywhere.
    model = Quadratic(np.repeat([0.0, 1.0], 10), np.zeros((20, 20)))
    ends = [anneal(model, starts(model, 3, 8), np.random.default_rng(s)) for s in (0, 0, 1)]
    assert ends[0] == ends[1] != ends[2]
    assert all(max(state) < 10 for state in ends[0])


def test_closure_has_no_better_neighbours() -> None:
    model = random_model(14, 5)
    found = closure(model, [(0, 1, 2, 3, 4)], 6)
    last = model.energy(found[-1])
    for state in found:
        for out, into in itertools.product(state, set(range(14)) - set(state)):
            neighbour = tuple(sorted({*state, into} - {out}))
            assert neighbour in found or model.energy(neighbour) >= last
    assert found == sorted(found, key=model.energy)


@settings(deadline=None)
@given(st.integers(0, 999), st.integers(1, 6))
def test_gradient_form_is_the_mean_squared_sum(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    gradients = rng.normal(size=(5, 7))
    state = tuple(sorted(rng.choice(7, k, replace=False).tolist()))
    votes = [sum(row[i] for i in state) for row in gradients]
    model = Quadratic.from_gradients(gradients)
    assert model.energy(state) == pytest.approx(sum(v * v for v in votes) / 5)


@settings(deadline=None)
@given(st.integers(0, 999), st.integers(1, 6))
def test_first_order_form_is_the_taylor_expansion(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    gradients = rng.normal(size=(5, 7))
    state = tuple(sorted(rng.choice(7, k, replace=False).tolist()))
    step = np.zeros(7)
    step[list(state)] = -1.0
    hessian = sum(np.outer(row, row) for row in gradients) / 5
    expansion = gradients.mean(0) @ step + 0.5 * step @ hessian @ step
    model = Quadratic.from_gradients(gradients, first_order=True)
    assert model.energy(state) == pytest.approx(expansion)


def test_opposite_gradients_cancel() -> None:
    model = Quadratic.from_gradients(np.array([[3.0, -3.0, 1.0, 1.0]]))
    assert enumerate_lowest(model, 2, 1) == [(0, 1)]


@given(st.integers(0, 999))
def test_pairwise_form_is_exact_for_one_and_two_removals(seed: int) -> None:
    rng = np.random.default_rng(seed)
    singles, pairs = rng.normal(size=6), rng.normal(size=(6, 6))
    model = Quadratic.from_losses(0.25, singles, pairs)
    for i in range(6):
        assert 0.25 + model.energy((i,)) == pytest.approx(singles[i])
    for i, j in itertools.combinations(range(6), 2):
        assert 0.25 + model.energy((i, j)) == pytest.approx(pairs[i, j])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_losses_that_are_not_finite_cost_more_than_all_others(value: float) -> None:
    rng = np.random.default_rng(0)
    singles, pairs = rng.normal(size=8), rng.normal(size=(8, 8))
    singles[2] = value
    pairs[0, 1] = pairs[2, 5] = value
    model = Quadratic.from_losses(0.0, singles, pairs)
    states = enumerate_lowest(model, 3, 56)
    assert np.isfinite([model.energy(s) for s in states]).all()
    broken = [2 in s or {0, 1} <= set(s) for s in states]
    assert broken == sorted(broken)
    assert any(broken)
    assert not all(broken)


def test_annealing_is_not_misled_by_prohibitive_terms() -> None:
    singles = np.random.default_rng(1).normal(size=20)
    singles[:6] = np.nan
    pairs = np.random.default_rng(2).normal(size=(20, 20))
    model = Quadratic.from_losses(0.0, singles, pairs)
    found = anneal_lowest(model, starts(model, 5, 32), 10, np.random.default_rng(0))
    assert found == enumerate_lowest(model, 5, 10)


def test_nothing_finite_is_flat() -> None:
    nothing = np.full(5, np.nan), np.full((5, 5), np.nan)
    model = Quadratic.from_losses(0.0, *nothing)
    assert enumerate_lowest(model, 2, 1) == [(0, 1)]
    assert anneal_lowest(model, [(3, 4)], 1, np.random.default_rng(0)) == [(0, 1)]


def test_pairs_that_were_not_measured_have_no_coupling() -> None:
    pairs = np.full((3, 3), -np.inf)
    pairs[0, 1] = 5.0
    model = Quadratic.from_losses(1.0, np.array([2.0, 3.0, 4.0]), pairs)
    assert model.energy((0, 1)) == 4.0
    assert model.energy((0, 2)) == 1.0 + 3.0
