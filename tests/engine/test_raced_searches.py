"""The searches whose contests are raced pass the suite that every search must pass."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.config.searches import BeamConfig, GreedyConfig
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.engine.driver import drive
from shoal.engine.evaluator import Evaluator
from shoal.engine.racing import Racer
from shoal.engine.store import Store
from shoal.testing.landscapes import Landscape, Pairwise, Stopped
from shoal.testing.racing import parted_evaluator
from shoal.testing.searches import SearchConformance
from shoal.testing.signals import LandscapeSignals


@dataclass(frozen=True)
class Noisy:
    """A landscape with more examples: copies that differ by noise whose sum is zero."""

    inner: Landscape
    copies: int = 32

    @property
    def depth(self) -> int:
        return self.inner.depth

    def losses(self, mask: Mask) -> tuple[float, ...]:
        base = np.asarray(self.inner.losses(mask))
        rng = np.random.default_rng([*mask.blocks])
        noise = rng.integers(-128, 129, (self.copies // 2, len(base))) / 1024
        return tuple((base + np.concatenate([noise, -noise])).ravel().tolist())


@dataclass
class RacedLandscape:
    """A racer with the interface of the evaluator that the conformance suite knows."""

    landscape: Landscape
    store: Store | None = None
    stop_after: int | None = None
    asked: list[list[Mask]] = field(default_factory=list)
    runs: list[list[Mask]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = Store(None, {}) if self.store is None else self.store
        self.evaluator = parted_evaluator(Noisy(self.landscape), store=self.store)
        self.racer = Racer(self.evaluator, contests=7)
        finish = self.evaluator.finish

        def remember(number: int, evaluations: Any) -> None:
            if self.stop_after is not None and len(self.runs) >= self.stop_after:
                raise Stopped
            finish(number, evaluations)
            self.runs.append([e.mask for e in evaluations])

        self.evaluator.finish = remember  # type: ignore[method-assign]

    @property
    def computed(self) -> int:
        return sum(map(len, self.runs))

    def known(self, mask: Mask) -> Evaluation | None:
        assert self.store is not None
        return self.store.get(mask)

    def evaluate(self, masks: Any) -> list[Evaluation]:
        self.asked.append(list(masks))
        return self.racer.evaluate(masks)


class Raced(SearchConformance):
    @pytest.fixture(autouse=True)
    def _raced(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("shoal.testing.solving.LandscapeEvaluator", RacedLandscape)


class TestGreedyRaced(Raced):
    @pytest.fixture
    def config(self) -> GreedyConfig:
        return GreedyConfig()


class TestBeamRaced(Raced):
    @pytest.fixture
    def config(self) -> BeamConfig:
        return BeamConfig()


@pytest.mark.parametrize("config", [GreedyConfig(), BeamConfig(width=3)])
def test_a_stopped_search_decides_the_same_and_computes_nothing_twice(
    config: Any, tmp_path: Path
) -> None:
    landscape = Noisy(Pairwise.random(8, 3))
    space = SearchSpace.of_blocks(8)

    def search(store: Store, stop_after: int | None = None) -> tuple[Any, Evaluator, Racer, list]:
        evaluator = parted_evaluator(landscape, store=store, stop_after=stop_after)
        racer, rows = Racer(evaluator, contests=4), []
        signals = LandscapeSignals(landscape, space)
        keep = lambda new, _: rows.extend(new)  # noqa: E731
        try:
            outcome = drive(config, space, 4, 0, racer, signals, on_batch=keep)
        except Stopped:
            outcome = None
        return outcome, evaluator, racer, rows

    def plain(rows: list) -> list:
        return [(r.mask, r.loss, r.complete, r.best, r.blocks) for r in rows]

    outcome, whole, racer, rows = search(Store(None, {}))
    runs = whole.source.runs  # type: ignore[attr-defined]
    assert racer.savings.factor > 1
    for stop in range(len(runs)):
        with Store(tmp_path / "s", {"stop": stop}) as store:
            first = search(store, stop)[1]
            assert first.source.runs == runs[:stop]  # type: ignore[attr-defined]
        with Store(tmp_path / "s", {"stop": stop}) as store:
            again, evaluator, resumed, found = search(store)
        assert evaluator.source.runs == runs[stop:]  # type: ignore[attr-defined]
        assert again == outcome
        assert plain(found) == plain(rows)
        assert vars(resumed.savings)["blocks"] == racer.savings.blocks
        assert resumed.summary() == racer.summary()
