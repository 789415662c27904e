import numpy as np
import pytest

from shoal.config.searches import CboConfig
from shoal.core.budget import WeightBudget
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.core.units import Granularity, units_of_granularity
from shoal.searches.base import Problem
from shoal.searches.cbo_weight import solve_weight
from shoal.searches.certificate import certify
from shoal.searches.cover import Cover
from shoal.searches.quadratic import Quadratic
from shoal.searches.quadratic_cover import lowest_of
from shoal.searches.unit_sets import UnitSet, units_of
from shoal.testing.landscapes import Sublayers
from shoal.testing.signals import LandscapeSignals

DEPTH = 7


def random_model(units: int, seed: int) -> Quadratic:
    rng = np.random.default_rng([units, seed])
    upper = np.triu(rng.normal(size=(units, units)), 1)
    return Quadratic(rng.normal(size=units), upper + upper.T)


def problem(
    kind: Granularity = Granularity.BOTH, share: float = 0.35, constraint: object = None
) -> Problem:
    prices = tuple((np.random.default_rng(5).integers(4, 12, (DEPTH, 2)) * [1, 3]).ravel().tolist())
    space = SearchSpace(DEPTH, units_of_granularity(kind, DEPTH), constraint)  # type: ignore[arg-type]
    budget = WeightBudget(prices, share * sum(prices))
    signals = LandscapeSignals(Sublayers.random(DEPTH), space)
    return Problem(space, budget, np.random.default_rng(0), signals)


def all_answers(asked: Problem) -> list[UnitSet]:
    return [units_of(asked.space, mask) for mask in asked.budget.masks(asked.space)]


def by_hand(model: Quadratic, state: UnitSet) -> float:
    pairs = sum(model.couplings[i, j] for i in state for j in state if i < j)
    return float(sum(model.linear[i] for i in state) + pairs)


@pytest.mark.parametrize("kind", [Granularity.BOTH, Granularity.HALF])
def test_the_lowest_are_those_of_the_loop_written_by_hand(kind: Granularity) -> None:
    asked = problem(kind)
    model, answers = random_model(len(asked.space.units), 0), all_answers(asked)
    expected = sorted(answers, key=lambda state: by_hand(model, state))[:10]
    assert lowest_of(model, answers, 10) == expected


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", [Granularity.BOTH, Granularity.HALF])
def test_annealing_finds_the_lowest_states(kind: Granularity, seed: int) -> None:
    asked = problem(kind)
    model = random_model(len(asked.space.units), seed)
    config = CboConfig(states=8, certify=False, restarts=16)
    annealed = solve_weight(asked, config, model, 0)
    exact = solve_weight(asked, config, model, 100_000)
    assert len(all_answers(asked)) > 80
    assert annealed.states[0] == exact.states[0]
    assert len(set(annealed.states) & set(exact.states)) >= 6
    assert annealed.certificate == "none asked for"
    assert exact.certificate == "lowest state optimal: all sets were enumerated"


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", [Granularity.BOTH, Granularity.HALF])
def test_the_proof_is_about_all_answers(kind: Granularity, seed: int) -> None:
    asked = problem(kind)
    model, cover = random_model(len(asked.space.units), seed), Cover.of(asked.space, asked.budget)
    states = lowest_of(model, all_answers(asked), 1000)
    for start in (states[0], states[-1]):
        proof = certify(model, start, 60, apart=cover.apart, cover=cover)
        assert proof.state == states[0]
        assert proof.text == "lowest state proven optimal (milp)"
        assert proof.bound == pytest.approx(model.energy(states[0]), abs=1e-5)


def test_the_proof_is_used_and_stated() -> None:
    asked = problem()
    solved = solve_weight(asked, CboConfig(states=3), random_model(14, 1), 0)
    assert solved.certificate == "lowest state proven optimal (milp)"


def test_constraints_hold_and_the_proof_says_what_it_is_about() -> None:
    def even(mask: Mask) -> bool:
        return len(mask.places) % 2 == 0

    asked = problem(constraint=even)
    model = random_model(14, 2)
    solved = solve_weight(asked, CboConfig(states=6), model, 0)
    assert all(len(state) % 2 == 0 for state in solved.states)
    assert "all sets, valid or not" in solved.certificate


def test_gains_do_not_tempt_it_to_remove_in_vain() -> None:
    asked = problem()
    model = Quadratic(-np.ones(14), np.zeros((14, 14)))
    solved = solve_weight(asked, CboConfig(states=5), model, 0)
    most = max(map(len, all_answers(asked)))
    assert len(solved.states[0]) == most
    assert solved.certificate == "lowest state proven optimal (milp)"
