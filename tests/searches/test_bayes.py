import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

from shoal.config.searches import BayesConfig, RandomConfig
from shoal.core.budget import CountBudget
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.searches.base import Problem
from shoal.searches.bayes import Proposer, clamped
from shoal.searches.prior import prior_weights
from shoal.searches.ranking import top_k
from shoal.testing.landscapes import Additive, Broken, Landscape, Pairwise, optimum
from shoal.testing.searches import SearchConformance, no_neighbours, solve
from shoal.testing.signals import LandscapeSignals


class TestBayes(SearchConformance):
    @pytest.fixture
    def config(self) -> BayesConfig:
        return BayesConfig(trials=15, initial=5)


def of_size(masks: list[list[Mask]], k: int) -> list[Mask]:
    return [mask for batch in masks for mask in batch if len(mask) == k]


def singles(landscape: Landscape) -> list[Evaluation]:
    masks = [Mask.of(landscape.depth, [i]) for i in range(landscape.depth)]
    return [Evaluation.of(m, landscape.losses(m)) for m in masks]


def one_shot(landscape: Landscape, k: int) -> Mask | None:
    space = SearchSpace.of_blocks(landscape.depth)
    return top_k(space, [e.rank_key for e in singles(landscape)], k)


def proposer(landscape: Landscape, k: int, pool: int = 64) -> Proposer:
    space = SearchSpace.of_blocks(landscape.depth)
    problem = Problem(
        space, CountBudget(k), np.random.default_rng(0), LandscapeSignals(landscape, space)
    )
    alone = singles(landscape)
    dense = Evaluation.of(space.dense, landscape.losses(space.dense))
    excess = np.array([e.mean - dense.mean for e in alone])
    return Proposer(problem, pool, prior_weights(alone), excess)


@pytest.mark.parametrize("trials", [1, 3, 25])
def test_cost_is_the_stated_one(trials: int) -> None:
    solved = solve(BayesConfig(trials=trials, initial=4), Pairwise.random(16), k=5)
    assert solved.outcome.evaluations == 16 + trials


def test_the_initial_sets_are_one_batch_led_by_one_shot() -> None:
    landscape = Pairwise.random(16, 1)
    asked = solve(BayesConfig(trials=9, initial=5), landscape, k=4).evaluator.asked
    # The driver asks for the dense model first and for the result last.
    _, dense, alone, initial, *trials, _ = asked
    assert len(dense) == 1
    assert len(alone) == 16
    assert len(set(initial)) == 5
    assert initial[0] == one_shot(landscape, 4)
    assert [len(batch) for batch in trials] == [1] * 4


def test_no_mask_is_asked_for_twice() -> None:
    solved = solve(BayesConfig(trials=40), Pairwise.random(12), k=4)
    searched = [mask for batch in solved.evaluator.asked[2:-1] for mask in batch]
    assert len(searched) == len(set(searched)) == 12 + 40


@pytest.mark.parametrize("k", [1, 3, 7])
def test_ends_when_everything_is_known(k: int) -> None:
    landscape = Pairwise.random(8, 2)
    space = SearchSpace.of_blocks(8)
    solved = solve(BayesConfig(trials=500), landscape, k=k)
    assert set(of_size(solved.evaluator.asked, k)) == set(space.masks(k))
    assert solved.outcome.best.mean == optimum(landscape, space, k).mean
    assert solved.outcome.evaluations == (8 if k == 1 else 8 + space.size(k))


def test_ends_when_everything_is_known_beyond_the_pool() -> None:
    solved = solve(BayesConfig(trials=500, pool=1), Pairwise.random(7, 2), k=3)
    assert len(set(of_size(solved.evaluator.asked, 3))) == 35


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("k", [1, 5, 15])
def test_one_shot_optimum_where_removals_add_up(seed: int, k: int) -> None:
    landscape = Additive.random(16, seed)
    found = solve(BayesConfig(trials=12), landscape, k=k, seed=seed).mask
    assert found == one_shot(landscape, k)


@pytest.mark.parametrize("seed", range(3))
def test_surrogate_alone_finds_the_one_shot_optimum(seed: int) -> None:
    # Not given the one-shot set, it walks there by swaps: at most one for each unit.
    landscape = Additive.random(16, seed)
    proposals = proposer(landscape, 5, pool=1)
    dense = Evaluation.of(Mask.dense(16), landscape.losses(Mask.dense(16)))
    worst = [Mask.of(16, range(i, i + 5)) for i in range(3)]
    proposals.learn(Evaluation.of(m, landscape.losses(m)) for m in worst)
    for _ in range(5):
        mask = proposals.next(dense)
        assert mask is not None
        proposals.learn([Evaluation.of(mask, landscape.losses(mask))])
    assert proposals.best.mask == one_shot(landscape, 5)


@pytest.mark.parametrize("seed", range(3))
def test_beats_random_search_and_one_shot_where_removals_interact(seed: int) -> None:
    landscape = Pairwise.random(20, seed, strength=0.3)
    found = solve(BayesConfig(trials=60), landscape, k=6, seed=seed).outcome.best.mean
    drawn = solve(RandomConfig(samples=200), landscape, k=6, seed=seed).outcome.best.mean
    ranked = one_shot(landscape, 6)
    assert ranked is not None
    assert found < drawn
    assert found < Evaluation.of(ranked, landscape.losses(ranked)).mean


def test_learns_interactions() -> None:
    # The two cheapest blocks are ruinous together; one set shows it, and the next avoids both.
    landscape = Pairwise(Additive(((0.0, 0.0, 0.25, 0.25, 0.25, 0.25, 1.0, 1.0),)), {(0, 1): 4.0})
    solved = solve(BayesConfig(trials=6, initial=2), landscape, k=3)
    assert len({0, 1} & set(solved.mask.blocks)) == 1
    assert solved.outcome.best.mean == optimum(landscape, SearchSpace.of_blocks(8), 3).mean


@pytest.mark.parametrize("broken", [(0, 3), tuple(range(1, 12)), tuple(range(12))])
def test_losses_that_are_not_finite_stop_nothing(broken: tuple[int, ...]) -> None:
    landscape = Broken.at(Pairwise.random(12), broken)
    solved = solve(BayesConfig(trials=30, pool=50), landscape, k=4)
    assert solved.outcome.evaluations == 12 + 30
    assert solved.mask.num_blocks == 4


def test_constraint_and_protection_hold_for_every_trial() -> None:
    space = SearchSpace.of_blocks(14, protect=(0, 5), constraint=no_neighbours)
    solved = solve(BayesConfig(trials=30, pool=40), Pairwise.random(14), k=4, space=space)
    tried = of_size(solved.evaluator.asked, 4)
    assert len(set(tried)) == 30
    assert all(space.is_valid(mask) for mask in tried)


def test_single_removals_that_are_not_valid_are_no_result() -> None:
    space = SearchSpace.of_blocks(6, constraint=lambda mask: 2 not in mask.blocks)
    landscape = Additive(((1.0, 0.5, 0.0, 1.0, 1.0, 1.0),))
    assert solve(BayesConfig(), landscape, k=1, space=space).mask == Mask.of(6, [1])


def test_worst_finite_loss_stands_for_those_that_are_not() -> None:
    assert clamped([1.0, np.inf, 3.0, np.nan]).tolist() == [1.0, 3.0, 3.0, 3.0]
    assert np.isnan(clamped([np.inf, np.nan])).all()


def test_candidates_are_the_pool_and_the_neighbours_of_the_best() -> None:
    landscape = Pairwise.random(16)
    proposals = proposer(landscape, 5, pool=40)
    masks = [Mask.of(16, range(i, i + 5)) for i in range(8)]
    proposals.learn(Evaluation.of(m, landscape.losses(m)) for m in masks)
    candidates = list(proposals._candidates())
    assert len(candidates) == 40 + 5 * 11
    best = set(proposals.best.mask.blocks)
    assert all(len(set(chosen) & best) == 4 for chosen in candidates[40:])
    assert all(
        len(chosen) == 5 and all(a < b for a, b in pairwise(chosen)) for chosen in candidates
    )


def test_drawn_candidates_follow_the_prior() -> None:
    landscape = Additive.random(100)
    proposals = proposer(landscape, 2, pool=4000)
    proposals.learn([Evaluation.of(Mask.of(100, [0, 1]), [1.0])])
    drawn = np.array(list(proposals._candidates())[:4000])
    p = proposals.weights
    # P(i among two drawn one after the other) = p_i + sum_{j != i} p_j p_i / (1 - p_j).
    ratio = p / (1 - p)
    expected = p * (1 + ratio.sum() - ratio)
    found = np.bincount(drawn.ravel(), minlength=100) / 4000
    error = np.sqrt(expected * (1 - expected) / 4000)
    assert (np.abs(found - expected) < 4.5 * error).all()
    assert expected.max() > 3 * expected.min()


def test_importing_the_search_loads_no_scipy() -> None:
    code = "import sys, shoal.searches.bayes, shoal.searches.cbo; print('scipy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
