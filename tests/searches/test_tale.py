import json
from dataclasses import dataclass
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.config.searches import GreedyConfig, TaleConfig
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.engine.driver import Limits
from shoal.searches.tale import within
from shoal.testing.landscapes import Additive, Pairwise
from shoal.testing.searches import SearchConformance, Solved, solve


class TestTale(SearchConformance):
    deterministic = True

    # Where removals cost something the dense model is the best on the path.
    separable_optimum = False
    first_of_ties = False

    @pytest.fixture(params=["fixed", "drifting"])
    def config(self, request: pytest.FixtureRequest) -> TaleConfig:
        return TaleConfig(floor=request.param)


class TestTaleToTheLast(SearchConformance):
    deterministic = True
    separable_optimum = False

    @pytest.fixture(params=["bsba", "last"])
    def config(self, request: pytest.FixtureRequest) -> TaleConfig:
        return TaleConfig(result=request.param)


class TestTaleThatNeverStops(SearchConformance):
    deterministic = True

    @pytest.fixture
    def config(self) -> TaleConfig:
        return TaleConfig(epsilon=inf, result="last")


@dataclass(frozen=True)
class Table:
    """Given losses; 9 for every other mask."""

    known: dict[tuple[int, ...], float]
    depth: int = 4

    def losses(self, mask: Mask) -> tuple[float, ...]:
        return (self.known.get(mask.blocks, 9.0),)


def read(**options: Any) -> TaleConfig:
    return TaleConfig.read(options)


def path(solved: Solved) -> list[str]:
    return [step["mask"] for step in solved.outcome.details["path"]]


# Improves, returns to the dense loss, then gets worse by 0.05 and at last by 0.2.
CURVE = Table({(): 0.5, (1,): 0.45, (1, 2): 0.5, (1, 2, 3): 0.55, (0, 1, 2): 0.6})


@pytest.mark.parametrize(
    ("result", "blocks"), [("best", [1]), ("bsba", [1, 2]), ("last", [1, 2, 3])]
)
def test_best_bsba_and_last(result: str, blocks: list[int]) -> None:
    solved = solve(read(result=result), CURVE)
    assert solved.mask == Mask.of(4, blocks)
    assert solved.outcome.details == {
        "path": [
            {"mask": "-[]", "loss": 0.5},
            {"mask": "-[1]", "loss": 0.45},
            {"mask": "-[1-2]", "loss": 0.5},
            {"mask": "-[1-3]", "loss": 0.55},
        ],
        "best": "-[1]",
        "bsba": "-[1-2]",
        "last": "-[1-3]",
        "loss_limit": 0.58,
        "stopped_because": "cap",
    }


def test_the_first_round_may_fail() -> None:
    solved = solve(read(), Table({(): 0.5, (2,): 0.6}))
    assert solved.mask == Mask.dense(4)
    assert path(solved) == ["-[]"]
    details = solved.outcome.details
    assert [details[pick] for pick in ("best", "bsba", "last")] == ["-[]"] * 3
    assert details["stopped_because"] == "floor"
    assert solved.outcome.evaluations == 4


def test_of_equal_losses_the_best_removes_fewest_and_bsba_most() -> None:
    solved = solve(read(), Additive.flat(6))
    assert solved.mask == Mask.dense(6)
    assert solved.outcome.details["best"] == "-[]"
    assert solved.outcome.details["bsba"] == solved.outcome.details["last"] == "-[0-2]"


def test_the_drifting_floor_follows_the_path() -> None:
    rising = Table({(): 0.5, (0,): 0.56, (0, 1): 0.62, (0, 1, 2): 0.75})
    assert path(solve(read(floor="fixed"), rising)) == ["-[]", "-[0]"]
    assert path(solve(read(floor="drifting"), rising)) == ["-[]", "-[0]", "-[0-1]"]
    # After an improvement it is the stricter one.
    valley = Table({(): 0.5, (0,): 0.25, (0, 1): 0.5, (0, 1, 2): 0.75})
    assert path(solve(read(floor="fixed"), valley)) == ["-[]", "-[0]", "-[0-1]"]
    assert path(solve(read(floor="drifting"), valley)) == ["-[]", "-[0]"]


@pytest.mark.parametrize(
    ("loss", "floor", "epsilon", "accepted"),
    [
        (0.75, 0.5, 0.25, True),
        (0.8, 0.7, 0.1, True),  # 0.7 + 0.1 is a little less than 0.8
        (0.0, -0.3, 0.1 + 0.2, True),
        (0.8 + 1e-9, 0.7, 0.1, False),
        (1e-9, 0.0, 0.0, False),
        (0.0, 0.0, 0.0, True),
        (1e300, 0.0, inf, True),
        (nan, 0.0, inf, False),
        (inf, 0.0, inf, False),
        (-inf, 0.0, inf, False),
    ],
)
def test_equality_is_within_the_floor_and_what_is_not_finite_never_is(
    loss: float, floor: float, epsilon: float, accepted: bool
) -> None:
    assert within(Evaluation.of(Mask.dense(4), [loss]), floor, epsilon) is accepted


@given(st.integers(0, 999), st.integers(1, 6), st.booleans())
def test_without_a_limit_it_is_greedy(seed: int, k: int, drifting: bool) -> None:
    landscape = Pairwise.random(7, seed)
    floor = "drifting" if drifting else "fixed"
    found = solve(read(epsilon=inf, floor=floor, result="last"), landscape, k=k)
    greedy = solve(GreedyConfig(), landscape, k=k)
    assert found.mask == greedy.mask
    assert found.evaluator.asked[2:] == greedy.evaluator.asked[1:]  # [1] is the dense model
    shorter = [str(solve(GreedyConfig(), landscape, k=i).mask) for i in range(1, k + 1)]
    assert path(found) == ["-[]", *shorter]


@given(
    st.integers(0, 999), st.sampled_from([0.0, 0.25, 1.0]), st.sampled_from(["fixed", "drifting"])
)
def test_nothing_that_it_saw_is_better_than_best(seed: int, epsilon: float, floor: str) -> None:
    solved = solve(read(epsilon=epsilon, floor=floor), Pairwise.random(7, seed), k=6)
    known = [solved.evaluator.known(mask) for mask in solved.asked]
    assert solved.outcome.best.mean == min(e.mean for e in known if e is not None)


@given(st.integers(0, 999), st.integers(1, 6), st.sampled_from([0.0, 0.25, 1.0, inf]))
def test_costs_what_it_says_and_its_details_are_json(seed: int, k: int, epsilon: float) -> None:
    solved = solve(read(epsilon=epsilon), Pairwise.random(7, seed), k=k)
    details = solved.outcome.details
    r, failed = len(path(solved)) - 1, details["stopped_because"] == "floor"
    assert solved.outcome.evaluations == 7 * r - r * (r - 1) // 2 + failed * (7 - r)
    assert json.loads(json.dumps(details, allow_nan=False)) == details
    assert details["best" if failed else "last"] in path(solved)
    assert r == k or failed


def test_the_space_may_end_it() -> None:
    space = SearchSpace.of_blocks(6, constraint=lambda m: len(m) < 3)
    solved = solve(read(epsilon=inf, result="last"), Additive.random(6), k=4, space=space)
    assert solved.mask.num_blocks == 2
    assert solved.outcome.details["stopped_because"] == "nothing left to remove"


@pytest.mark.parametrize("most", range(1, 10))
def test_a_budget_leaves_the_path_until_then(most: int) -> None:
    solved = solve(read(result="last"), CURVE, limits=Limits(evaluations=most))
    rounds = {1: 0, 2: 0, 3: 0, 4: 1, 5: 1, 6: 1, 7: 2, 8: 2, 9: 3}[most]
    assert path(solved) == ["-[]", "-[1]", "-[1-2]", "-[1-3]"][: rounds + 1]
    assert str(solved.mask) == path(solved)[-1]
    assert solved.outcome.details["stopped_because"] == ("budget" if most < 9 else "cap")
    assert solved.outcome.evaluations <= most


def test_a_budget_without_time_for_the_dense_model_removes_nothing() -> None:
    solved = solve(read(), CURVE, limits=Limits(seconds=0.0))
    assert solved.mask == Mask.dense(4)
    assert path(solved) == []
    assert solved.outcome.details["loss_limit"] is None
