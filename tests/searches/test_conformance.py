"""The conformance suite must catch a search that breaks its contract."""

import itertools
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest

from shoal.config.searches import SearchConfig
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask
from shoal.searches.base import OutOfBudget, Problem, SearchRun, best_of
from shoal.testing.searches import SearchConformance

CALLS = itertools.count()


class Broken(SearchConfig):
    implementation: ClassVar[str] = "unused:unused"
    summary: ClassVar[str] = "breaks the contract"
    name: Literal["broken"] = "broken"
    how: Any

    def load(self) -> Any:
        return self.how


def all_masks(problem: Problem) -> list[Mask]:
    return list(problem.space.masks(problem.k))


def unseeded(problem: Problem, config: Broken) -> SearchRun:
    rng = np.random.default_rng(next(CALLS))
    drawn = [problem.space.sample(rng, problem.k) for _ in range(5)]
    return best_of((yield drawn)).mask


def one_too_few(problem: Problem, config: Broken) -> SearchRun:
    scores = yield list(problem.space.masks(problem.k))
    return Mask.of(problem.space.depth, best_of(scores).mask.blocks[1:])


def unprotected(problem: Problem, config: Broken) -> SearchRun:
    yield [problem.space.dense.without({s}) for s in Mask.of(problem.space.depth, range(8))]
    return best_of((yield all_masks(problem))).mask


def last_of_ties(problem: Problem, config: Broken) -> SearchRun:
    scores = yield all_masks(problem)
    return best_of(scores[::-1]).mask


def nan_first(problem: Problem, config: Broken) -> SearchRun:
    scores = yield all_masks(problem)
    return min(scores, key=lambda e: (e.finite, e.mean)).mask


def unseen(problem: Problem, config: Broken) -> SearchRun:
    yield [problem.space.dense]
    return all_masks(problem)[-1]


def worst(problem: Problem, config: Broken) -> SearchRun:
    scores = yield all_masks(problem)
    return max(scores, key=lambda e: -np.inf if not e.finite else e.mean).mask


def unconstrained(problem: Problem, config: Broken) -> SearchRun:
    free = type(problem.space).of_blocks(problem.space.depth)
    return best_of((yield list(free.masks(problem.k)))).mask


def forgetful(problem: Problem, config: Broken) -> SearchRun:
    yield all_masks(problem)
    return best_of((yield all_masks(problem))).mask


def spendthrift(problem: Problem, config: Broken) -> SearchRun:
    scores: list[Evaluation] = []
    for mask in all_masks(problem):
        with suppress(OutOfBudget):
            scores += yield [mask]
    return best_of(scores).mask


def empty_handed(problem: Problem, config: Broken) -> SearchRun:
    try:
        return best_of((yield all_masks(problem))).mask
    except OutOfBudget:
        return problem.space.dense


@pytest.mark.parametrize(
    ("how", "test", "arguments"),
    [
        (one_too_few, "removes_exactly_k_units", {"k": 2}),
        (unprotected, "never_touches_protected_units", {"protect": (0,)}),
        (unconstrained, "satisfies_the_constraint", {}),
        (unseeded, "same_seed_same_masks", {"seed": 0}),
        (unseeded, "resumes_from_a_store", {"tmp_path": Path}),
        (unseeded, "a_finished_search_costs_nothing", {"tmp_path": Path}),
        (unseen, "returns_a_mask_that_it_has_seen", {}),
        (worst, "returns_a_mask_that_it_has_seen", {}),
        (last_of_ties, "ties", {}),
        (nan_first, "losses_that_are_not_finite_rank_last", {"value": float("nan")}),
        (worst, "separable_optimum", {"seed": 0}),
        (forgetful, "never_asks_twice", {"k": 3}),
        (spendthrift, "a_budget_ends_it_with_a_valid_mask", {}),
        (empty_handed, "a_budget_ends_it_with_a_valid_mask", {}),
    ],
)
def test_a_broken_search_fails(
    how: Callable[..., Any], test: str, arguments: dict[str, Any], tmp_path: Path
) -> None:
    suite = SearchConformance()
    given = {k: tmp_path if v is Path else v for k, v in arguments.items()}
    with pytest.raises((AssertionError, RuntimeError)):
        getattr(suite, f"test_{test}")(Broken(how=how), **given)


def test_the_config_must_be_given() -> None:
    with pytest.raises(NotImplementedError, match="override the fixture `config`"):
        SearchConformance.config.__wrapped__(SearchConformance())  # type: ignore[attr-defined]
