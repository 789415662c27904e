import itertools
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from shoal.config.searches import CboConfig
from shoal.core.budget import CountBudget
from shoal.core.errors import NotFiniteError, UsageError
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.engine.driver import drive
from shoal.searches import cbo as module
from shoal.searches.base import Problem
from shoal.searches.cbo import solve as solve_model
from shoal.searches.quadratic import Quadratic, enumerate_lowest
from shoal.testing.landscapes import (
    GRID,
    Additive,
    Broken,
    Landscape,
    LandscapeEvaluator,
    Pairwise,
    optimum,
    removed_shares,
)
from shoal.testing.searches import SearchConformance, no_neighbours, solve
from shoal.testing.signals import LandscapeSignals


class TestPairwise(SearchConformance):
    deterministic = True
    unit_optimum = True
    pairwise_optimum = True

    @pytest.fixture
    def config(self) -> CboConfig:
        return CboConfig(states=5, batch=16)


class TestPairwiseAnnealed(SearchConformance):
    unit_optimum = True
    pairwise_optimum = True

    @pytest.fixture
    def config(self, monkeypatch: pytest.MonkeyPatch) -> CboConfig:
        monkeypatch.setattr(module, "ENUMERABLE", 0)
        return CboConfig(states=5, batch=16, restarts=8)


class TestGradient(SearchConformance):
    deterministic = True

    # A sum of squares is blind to the sign of a cost.
    separable_optimum = False

    @pytest.fixture
    def config(self) -> CboConfig:
        return CboConfig(form="gradient")

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_losses_that_are_not_finite_rank_last(self, config: CboConfig, value: float) -> None:
        # The gradients of a landscape with such losses are not finite either.
        with pytest.raises(NotFiniteError):
            solve(config, Broken.at(Additive.random(8), (0, 3), value))

    def test_nothing_finite(self, config: CboConfig) -> None:
        with pytest.raises(NotFiniteError):
            solve(config, Broken.at(Additive.random(8), range(8)))


class TestFirstOrder(TestGradient):
    @pytest.fixture
    def config(self) -> CboConfig:
        return CboConfig(form="gradient", first_order=True)


@dataclass(frozen=True)
class ThirdOrder:
    """Removals interact in pairs and in threes."""

    pairwise: Pairwise
    triples: dict[tuple[int, int, int], float]

    @classmethod
    def random(cls, depth: int, seed: int) -> "ThirdOrder":
        drawn = np.random.default_rng([seed, 2]).integers(-GRID, GRID + 1, (depth,) * 3) / GRID
        sets = itertools.combinations(range(depth), 3)
        return cls(Pairwise.random(depth, seed), {s: float(drawn[s]) for s in sets})

    @property
    def depth(self) -> int:
        return self.pairwise.depth

    def losses(self, mask: Mask) -> tuple[float, ...]:
        x = removed_shares(mask)
        extra = sum(c * x[i] * x[j] * x[k] for (i, j, k), c in self.triples.items())
        return tuple(loss + extra for loss in self.pairwise.losses(mask))


@dataclass
class WithGradients(LandscapeSignals):
    values: Any = None

    def gradients(self) -> Any:
        return np.asarray(self.values)


def problem(landscape: Landscape, k: int, space: SearchSpace | None = None) -> Problem:
    space = space or SearchSpace.of_blocks(landscape.depth)
    return Problem(
        space, CountBudget(k), np.random.default_rng(0), LandscapeSignals(landscape, space)
    )


def random_model(units: int, seed: int) -> Quadratic:
    rng = np.random.default_rng([units, seed])
    upper = np.triu(rng.normal(size=(units, units)), 1)
    return Quadratic(rng.normal(size=units), upper + upper.T)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("k", [1, 2])
def test_pairwise_is_exact_for_one_and_two_removals_of_any_landscape(seed: int, k: int) -> None:
    landscape = ThirdOrder.random(9, seed)
    best = optimum(landscape, SearchSpace.of_blocks(9), k)
    assert solve(CboConfig(states=1), landscape, k=k).mask == best.mask


def test_third_order_is_beyond_the_ground_state_and_states_help() -> None:
    ranks, losses = [], []
    for seed in range(20):
        landscape = ThirdOrder.random(9, seed)
        best = optimum(landscape, SearchSpace.of_blocks(9), 4).mean
        one, all_ = (solve(CboConfig(states=n), landscape, k=4).outcome for n in (1, 126))
        assert all_.best.mean == best
        ranks.append(all_.details["rank"])
        losses.append((one.best.mean, best))
    assert any(rank > 0 for rank in ranks)
    assert all(rank == 0 or one > best for rank, (one, best) in zip(ranks, losses, strict=True))


@pytest.mark.parametrize("k", range(1, 10))
def test_pairwise_finds_the_optimum_of_a_quadratic_for_every_count(k: int) -> None:
    landscape = Pairwise.random(10, 3)
    solved = solve(CboConfig(states=1), landscape, k=k)
    assert solved.outcome.best.mean == optimum(landscape, SearchSpace.of_blocks(10), k).mean
    dense = solved.outcome.dense.mean
    assert solved.outcome.details["energy"] == pytest.approx(solved.outcome.best.mean - dense)


@pytest.mark.parametrize(
    ("k", "protect", "cost"),
    [(1, (), 10), (2, (), 10 + 45), (4, (), 55 + 7), (4, (0, 9), 36 + 7), (9, (), 55 + 7)],
)
def test_cost_of_the_pairwise_form(k: int, protect: tuple[int, ...], cost: int) -> None:
    space = SearchSpace.of_blocks(10, protect)
    solved = solve(CboConfig(states=7, batch=16), Pairwise.random(10), k=k, space=space)
    assert solved.outcome.evaluations == cost
    assert max(map(len, solved.evaluator.asked)) <= 16


@pytest.mark.parametrize("first_order", [False, True])
def test_cost_of_the_gradient_form(first_order: bool) -> None:
    config = CboConfig(form="gradient", states=7, first_order=first_order)
    solved = solve(config, Pairwise.random(10), k=4)
    assert solved.outcome.evaluations == 7


@pytest.mark.parametrize("form", ["pairwise", "gradient"])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_no_mask_is_asked_for_twice(form: Any, k: int) -> None:
    solved = solve(CboConfig(form=form, states=9), Pairwise.random(9), k=k)
    searched = [mask for batch in solved.evaluator.asked[1:-1] for mask in batch]
    assert len(searched) == len(set(searched))


def test_gradient_form_evaluates_the_lowest_energies() -> None:
    landscape = Additive.random(9, 4, examples=6)
    space = SearchSpace.of_blocks(9)
    gradients = LandscapeSignals(landscape, space).gradients()
    energies = {
        mask: float(np.mean([sum(row[b] for b in mask.blocks) ** 2 for row in gradients]))
        for mask in space.masks(3)
    }
    solved = solve(CboConfig(form="gradient", states=6), landscape)
    contest = solved.evaluator.asked[1]
    assert contest == sorted(energies, key=energies.__getitem__)[:6]
    chosen = min(contest, key=lambda m: sum(landscape.losses(m)))
    assert solved.mask == chosen
    details = solved.outcome.details
    assert details["rank"] == contest.index(chosen)
    assert details["energy"] == pytest.approx(energies[chosen])


def test_details_are_json_and_say_what_happened() -> None:
    details = solve(CboConfig(states=4), Pairwise.random(8)).outcome.details
    assert json.loads(json.dumps(details, allow_nan=False)) == details
    assert set(details) == {"form", "energy", "rank", "states", "certificate"}
    assert (details["form"], details["rank"], details["states"]) == ("pairwise", 0, 4)
    assert details["certificate"] == "lowest state optimal: all sets were enumerated"


@pytest.mark.parametrize("k", [1, 2, 4])
def test_details_stay_finite_where_losses_are_not(k: int) -> None:
    landscape = Broken.at(Pairwise.random(8), range(8))
    details = solve(CboConfig(states=3), landscape, k=k).outcome.details
    json.dumps(details, allow_nan=False)
    assert np.isfinite(details["energy"])


def test_ground_state_is_the_only_one_evaluated_where_one_is_wanted() -> None:
    landscape = Pairwise.random(10, 6)
    solved = solve(CboConfig(states=1), landscape, k=5)
    assert solved.evaluator.asked[-2] == [solved.mask]


@pytest.mark.parametrize("row", [[np.nan, 1.0, 1.0, 1.0], [1.0, 1.0, np.inf, 1.0]])
def test_gradients_that_are_not_finite_are_refused(row: list[float]) -> None:
    space = SearchSpace.of_blocks(4)
    landscape = Additive.random(4)
    signals = WithGradients(landscape, space, values=[[1.0] * 4, row])
    run = CboConfig().load()(
        Problem(space, CountBudget(2), np.random.default_rng(0), signals),
        CboConfig(form="gradient"),
    )
    with pytest.raises(NotFiniteError, match=r"gradients of 1 of 2 examples .* first of example 1"):
        next(run)


@pytest.mark.parametrize("enumerable", [0, 200_000])
@pytest.mark.parametrize("form", ["pairwise", "gradient"])
def test_only_valid_masks_are_pairs_and_states(
    monkeypatch: pytest.MonkeyPatch, enumerable: int, form: Any
) -> None:
    monkeypatch.setattr(module, "ENUMERABLE", enumerable)
    space = SearchSpace.of_blocks(11, protect=(4,), constraint=no_neighbours)
    config = CboConfig(form=form, states=8, restarts=8)
    solved = solve(config, Pairwise.random(11), k=4, space=space)
    searched = [m for batch in solved.evaluator.asked[1:-1] for m in batch]
    assert all(space.is_valid(mask) for mask in searched)
    assert sum(len(mask) == 4 for mask in searched) == 8


@pytest.mark.parametrize("seed", range(5))
def test_annealing_finds_the_best_valid_state(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(module, "ENUMERABLE", 0)
    space = SearchSpace.of_blocks(12, constraint=lambda m: sum(m.blocks) % 3 == 0 or len(m) < 3)
    landscape = Pairwise.random(12, seed)
    solved = solve(CboConfig(states=1), landscape, k=4, space=space, seed=seed)
    assert solved.outcome.best.mean == optimum(landscape, space, 4).mean
    assert "all sets, valid or not" in solved.outcome.details["certificate"]


@pytest.mark.parametrize("k", [1, 2, 3])
def test_no_valid_mask_is_reported(k: int) -> None:
    space = SearchSpace.of_blocks(6, constraint=lambda m: not m.removed)
    with pytest.raises(UsageError, match=f"no valid mask removes {k} units"):
        solve(CboConfig(), Additive.random(6), k=k, space=space)


def test_large_problems_are_annealed_to_the_same_states(monkeypatch: pytest.MonkeyPatch) -> None:
    model, asked = random_model(14, 1), problem(Additive.flat(14), 6)
    exact = solve_model(asked, CboConfig(), model)
    assert exact.states == enumerate_lowest(model, 6, 20)
    monkeypatch.setattr(module, "ENUMERABLE", 0)
    annealed = solve_model(asked, CboConfig(), model)
    assert annealed.states == exact.states
    assert annealed.certificate == "lowest state proven optimal (milp)"
    assert solve_model(asked, CboConfig(certify=False), model).certificate == "none asked for"


@pytest.mark.parametrize("valid", [True, False])
def test_a_lower_state_from_the_proof_is_used(monkeypatch: pytest.MonkeyPatch, valid: bool) -> None:
    # Annealing is made to miss the lowest states.
    model = random_model(12, 2)
    best, *_, worst = enumerate_lowest(model, 5, 700)
    monkeypatch.setattr(module, "ENUMERABLE", 0)
    monkeypatch.setattr(module, "anneal_lowest", lambda *_: [worst])
    forbidden = Mask.of(12, best)
    space = SearchSpace.of_blocks(12, constraint=None if valid else lambda m: m != forbidden)
    solved = solve_model(problem(Additive.flat(12), 5, space), CboConfig(states=3), model)
    if valid:
        assert solved.states == enumerate_lowest(model, 5, 3)
    else:
        assert solved.states == [worst]
        assert "that state is not valid" in solved.certificate


def test_overlapping_units_do_not_go_together() -> None:
    blocks = SearchSpace.of_blocks(6).units
    space = SearchSpace(6, (*blocks, blocks[0] | blocks[1]))
    solved = solve(CboConfig(states=4), Pairwise.random(6), k=3, space=space)
    assert len(space.removed_units(solved.mask)) == 3


def test_a_driver_that_knows_all_pairs_pays_for_states_only() -> None:
    # The model does not depend on k: another k reuses all pairs.
    landscape = Pairwise.random(9, 8)
    first = solve(CboConfig(states=3), landscape, k=3)
    space = SearchSpace.of_blocks(9)
    second = LandscapeEvaluator(landscape, _known=first.evaluator._known)
    drive(CboConfig(states=3), space, 5, 0, second, LandscapeSignals(landscape, space))
    assert second.computed == 3
