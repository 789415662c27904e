"""Signals: units and windows, what is kept, what is refused."""

import numpy as np
import pytest

import shoal.engine.signals as module
from shoal.config.objectives import AccuracyConfig, NllConfig
from shoal.config.searches import OneShotConfig
from shoal.core.errors import UsageError
from shoal.core.mask import Part, Site
from shoal.core.space import SearchSpace
from shoal.data import Choice, ChoiceItem, ChoiceSet, Corpus, Tokenisation
from shoal.engine.signals import ModelSignals
from shoal.objectives.base import GenerationObjective
from shoal.objectives.build import build_objective
from shoal.objectives.scores.table import SCORES

TEXTS = Corpus.of("toy", "train", ["what a text this is, and on it goes. " * 30], "here")
ITEMS = ChoiceSet.of(
    "toy", "train", [ChoiceItem("0", (Choice("p q", " mat"), Choice("p q", " dog")), 0)], "here"
)
NLL = NllConfig()
SPACE = SearchSpace.of_blocks(6, protect=[0, 4])


def signals_on(dense, space=SPACE, artifacts=None, config=NLL, data=TEXTS, limit=3):
    objective = build_objective(
        config, data, dense, tokenisation=Tokenisation(), length=24, limit=limit
    )
    return ModelSignals(dense, objective, space, {} if artifacts is None else artifacts)


def no_work(monkeypatch):
    def fail(*args, **kwargs):
        raise AssertionError("computed twice")

    for name in ("state_windows", "taylor", "magnitude", "gate_gradients"):
        monkeypatch.setattr(module, name, fail)


def test_every_rank_of_the_config_is_a_score():
    ranks = set(OneShotConfig.model_json_schema()["properties"]["rank"]["enum"])
    assert ranks - {"loss"} == set(SCORES)


@pytest.mark.parametrize("name", SCORES)
def test_units_are_windows_of_one_block(tiny_dense, name):
    signals = signals_on(tiny_dense("llama"))
    windows = signals.windows(name, 1)
    assert len(windows) == 6
    assert signals.units(name) == [windows[i] for i in (1, 2, 3, 5)]
    for length in range(1, 7):
        found = signals.windows(name, length)
        assert len(found) == 7 - length
        assert np.isfinite(found).all()
        if name in ("taylor", "magnitude"):
            sums = [sum(windows[i : i + length]) for i in range(7 - length)]
            assert found == pytest.approx(sums)


def test_gradients_are_those_of_the_units(tiny_dense):
    dense = tiny_dense("llama")
    some = signals_on(dense).gradients()
    every = signals_on(dense, SearchSpace.of_blocks(6)).gradients()
    assert some.shape == (3, 4)
    assert np.array_equal(some, every[:, [1, 2, 3, 5]])


def test_what_is_kept_is_not_computed_again(tiny_dense, monkeypatch):
    dense, artifacts = tiny_dense("llama"), {}
    first = signals_on(dense, artifacts=artifacts)
    before = {name: (first.units(name), first.windows(name, 3)) for name in SCORES}
    gradients = first.gradients()
    assert all(isinstance(v, bytes) for v in artifacts.values())
    no_work(monkeypatch)
    second = signals_on(dense, artifacts=artifacts)
    assert {name: (second.units(name), second.windows(name, 3)) for name in SCORES} == before
    assert np.array_equal(second.gradients(), gradients)
    # Weights know nothing of the data.
    assert signals_on(dense, artifacts=artifacts, limit=2).units("magnitude")


@pytest.mark.parametrize("change", ["data", "model"])
def test_other_data_or_models_are_computed_anew(tiny_dense, monkeypatch, change):
    dense, artifacts = tiny_dense("llama"), {}
    signals_on(dense, artifacts=artifacts).units("angular")
    other = tiny_dense("qwen2") if change == "model" else dense
    no_work(monkeypatch)
    with pytest.raises(AssertionError, match="twice"):
        signals_on(other, artifacts=artifacts, limit=2).units("angular")


def test_one_pass_gives_all_state_scores(tiny_dense, monkeypatch):
    signals = signals_on(tiny_dense("llama"))
    signals.units("norm_ratio")
    no_work(monkeypatch)
    for name in ("block_influence", "angular", "relative_magnitude"):
        signals.units(name)
    signals.windows("angular", 5)


def test_damaged_artifacts_are_made_anew(tiny_dense):
    artifacts = {}
    expected = signals_on(tiny_dense("llama"), artifacts=artifacts).units("angular")
    for key in artifacts:
        artifacts[key] = artifacts[key][:40]
    assert signals_on(tiny_dense("llama"), artifacts=artifacts).units("angular") == expected


def test_refusals(tiny_dense):
    dense = tiny_dense("llama")
    with pytest.raises(UsageError, match='Did you mean "angular"'):
        signals_on(dense).units("angluar")
    with pytest.raises(UsageError, match="windows of 7 blocks"):
        signals_on(dense).windows("angular", 7)
    halves = SearchSpace(6, (frozenset({Site(1, Part.ATTN)}), frozenset({Site(1, Part.MLP)})))
    with pytest.raises(UsageError, match="whole single blocks"):
        signals_on(dense, halves).units("angular")
    with pytest.raises(UsageError, match="whole single blocks"):
        signals_on(dense, halves).gradients()
    counting = signals_on(dense, config=AccuracyConfig(), data=ITEMS, limit=None)
    with pytest.raises(UsageError, match="margin, likelihood or nll"):
        counting.units("taylor")
    assert counting.units("block_influence")


def test_generated_text_gives_no_states(tiny_dense):
    class Writes(GenerationObjective):
        expression, fingerprint, data, num_tokens = "exact_match:toy", "f", {}, 0

        def prepare(self, data, dense, options):
            raise NotImplementedError

        def losses(self, model, batch):
            raise NotImplementedError

    signals = ModelSignals(tiny_dense("llama"), Writes(), SPACE, {})
    for ask in (lambda: signals.units("angular"), signals.gradients):
        with pytest.raises(UsageError, match=r"Rank by loss|nll or margin"):
            ask()
    assert len(signals.units("magnitude")) == 4
