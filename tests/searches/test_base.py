import subprocess
import sys
from collections.abc import Iterator
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.config.searches import SEARCHES
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask
from shoal.searches.base import batches, best_of


def evaluations(*means: float) -> list[Evaluation]:
    return [Evaluation.of(Mask.of(9, [i]), [mean]) for i, mean in enumerate(means)]


@pytest.mark.parametrize(
    ("means", "winner"),
    [
        ((3.0, 1.0, 2.0), 1),
        ((2.0, 1.0, 1.0), 1),
        ((nan, 5.0, inf), 1),
        ((-inf, nan, 5.0), 2),
        ((nan, inf, nan), 0),
    ],
)
def test_best_of_is_the_first_least_and_never_what_is_not_finite(
    means: tuple[float, ...], winner: int
) -> None:
    assert best_of(evaluations(*means)).mask.blocks == (winner,)


@given(st.integers(0, 30), st.integers(1, 10))
def test_batches_cut_without_loss(count: int, size: int) -> None:
    masks = [Mask.of(31, [i]) for i in range(count)]
    cut = list(batches(masks, size))
    assert [m for batch in cut for m in batch] == masks
    assert all(len(batch) == size for batch in cut[:-1])
    assert all(cut)


def test_batches_do_not_run_ahead() -> None:
    taken: list[int] = []

    def stream() -> Iterator[Mask]:
        for i in range(9):
            taken.append(i)
            yield Mask.of(9, [i])

    next(batches(stream(), 3))
    assert taken == [0, 1, 2]


def imports_torch(code: str) -> bool:
    check = f"{code}; import sys; sys.exit('torch' in sys.modules)"
    return subprocess.run([sys.executable, "-c", check], check=False).returncode == 1


def test_searches_need_no_torch() -> None:
    modules = {config.implementation.split(":")[0] for config in SEARCHES.values()}
    names = ", ".join([*sorted(modules), "shoal.testing.landscapes", "shoal.config.run"])
    assert not imports_torch(f"import {names}")


def test_the_torch_check_can_fail() -> None:
    assert imports_torch("import sys; sys.modules['torch'] = sys")
