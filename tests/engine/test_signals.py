"""Signals: units and windows, what is kept, what is refused."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch

import shoal.engine.signals as module
from shoal.config.objectives import AccuracyConfig, NllConfig
from shoal.config.searches import CboConfig, OneShotConfig
from shoal.core.errors import UsageError
from shoal.core.mask import Mask, Part, Site
from shoal.core.space import SearchSpace
from shoal.core.units import Granularity, half_step, units_of_granularity
from shoal.data import Choice, ChoiceItem, ChoiceSet, Corpus, Tokenisation
from shoal.engine.driver import drive
from shoal.engine.evaluator import Evaluator
from shoal.engine.losses import ScoredLosses
from shoal.engine.selfcheck import choose_runner
from shoal.engine.signals import ModelSignals, unit_name
from shoal.engine.store import Store
from shoal.models.hidden import hidden_of, with_hidden
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

    for name in ("state_windows", "state_runs", "taylor", "magnitude", "gate_gradients"):
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
    gap = SearchSpace(6, (frozenset({Site(1, Part.ATTN), Site(4, Part.MLP)}),))
    for ask in (lambda: signals_on(dense, gap).units("angular"), signals_on(dense, gap).gradients):
        with pytest.raises(UsageError, match=r"runs only.*run of neighbouring sub-layers"):
            ask()
    beside = signals_on(tiny_dense("cohere"), SearchSpace(6, (half_step(2),)))
    with pytest.raises(UsageError, match=r"2.mlp\+3.attn by itself.*block 2 work side by side"):
        beside.units("angular")
    # Weights and gates of parallel sub-layers add up all the same.
    assert len(beside.units("magnitude")) == beside.gradients().shape[1] == 1
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


PARTS = [g for g in Granularity if g is not Granularity.BLOCK]


def space_of(granularity, protect=()):
    return SearchSpace(6, units_of_granularity(Granularity(granularity), 6, protect))


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("family", ["llama", "granitemoehybrid"])
def test_units_of_every_granularity_agree_where_they_are_the_same(tiny_dense, family, name):
    dense, artifacts = tiny_dense(family), {}
    every = signals_on(dense, space_of("attn+mlp"), artifacts).units(name)
    assert signals_on(dense, space_of("attn"), artifacts).units(name) == every[::2]
    assert signals_on(dense, space_of("mlp"), artifacts).units(name) == every[1::2]
    some = signals_on(dense, space_of("mixed", [0, 3]), artifacts).units(name)
    assert some == [every[i] for i in (2, 3, 4, 5, 8, 9, 10, 11)]
    halves = signals_on(dense, space_of("half"), artifacts).units(name)
    assert halves[::2] == signals_on(dense, SearchSpace.of_blocks(6)).units(name)
    assert len(halves) == 11
    if name in ("taylor", "magnitude"):
        assert halves[1::2] == [every[i] + every[i + 1] for i in range(1, 11, 2)]


@pytest.mark.parametrize("name", ["norm_ratio", "angular", "magnitude"])
def test_longer_runs_of_any_kind(tiny_dense, name):
    """Two blocks; two blocks and an attention."""
    dense = tiny_dense("gpt2")
    two = frozenset({Site(1), Site(2)})
    more = two | {Site(3, Part.ATTN)}
    blocks = signals_on(dense, SearchSpace(6, (two,))).units(name)
    assert blocks == [signals_on(dense).windows(name, 2)[1]]
    found = signals_on(dense, SearchSpace(6, (two, more))).units(name)
    assert found[0] == blocks[0]
    if name == "magnitude":
        attention = SearchSpace(6, (frozenset({Site(3, Part.ATTN)}),))
        assert found[1] == pytest.approx(found[0] + signals_on(dense, attention).units(name)[0])
    else:
        assert found[1] != found[0]


def test_shared_weights_count_to_the_block_only(tiny_dense):
    dense = tiny_dense("cohere")
    apart = signals_on(dense, space_of("attn+mlp")).units("magnitude")
    norms = [float(b.input_layernorm.weight.detach().abs().sum()) for b in dense.blocks.layers]
    whole = signals_on(dense, SearchSpace.of_blocks(6)).units("magnitude")
    sums = [apart[2 * i] + apart[2 * i + 1] + norms[i] for i in range(6)]
    assert whole == pytest.approx(sums)


@contextmanager
def scaled(dense, unit, alpha) -> Iterator[None]:
    """Everything that a unit adds, times alpha."""
    hooks = []
    for site in Mask(6, unit).sublayers:
        branch = dense.branches[site.layer].branch(site.part)
        block = dense.blocks.layers[site.layer]

        def scale(module, args, output):
            return with_hidden(output, hidden_of(output) * alpha)

        hooks += [block.get_submodule(c.path).register_forward_hook(scale) for c in branch.updates]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def mean_loss(dense, objective):
    losses = []
    for batch in objective.batches:
        tokens = batch.tokens
        logits = dense.module(**tokens.forward_arguments(dense.dtype)).logits.double()
        table = logits.reshape(-1, logits.shape[-1])[tokens.rows].log_softmax(-1)
        losses.append(-table[tokens.pick, tokens.targets].mean())
    return torch.stack(losses).mean()


@pytest.mark.parametrize("family", ["llama", "gemma2", "bloom", "granitemoehybrid"])
def test_a_units_gate_moves_all_its_sublayers(tiny_dense, family):
    """The chain rule, by the loss along each half step and block."""
    dense, step = tiny_dense(family), 2e-2
    signals = signals_on(dense, space_of("half"))
    found = signals.gradients().mean(0)
    assert len(found) == 11
    for unit, slope in zip(signals.space.units, found, strict=True):
        expected = 0.0
        if family == "granitemoehybrid":
            # Its router jumps, so that differences over a step say nothing.
            alpha = torch.ones((), requires_grad=True)
            with scaled(dense, unit, alpha):
                loss = mean_loss(dense, signals.objective)
            expected = float(torch.autograd.grad(loss, alpha)[0])
        else:
            for at, weight in {-2: 1 / 12, -1: -8 / 12, 1: 8 / 12, 2: -1 / 12}.items():
                with scaled(dense, unit, 1 + at * step), torch.inference_mode():
                    expected += weight * float(mean_loss(dense, signals.objective)) / step
        assert slope == pytest.approx(expected, rel=1e-2, abs=5e-4), unit_name(unit)


def test_gradients_of_parts_are_kept_apart_from_those_of_blocks(tiny_dense):
    dense, artifacts = tiny_dense("llama"), {}
    blocks = signals_on(dense, SearchSpace.of_blocks(6), artifacts).gradients()
    halves = signals_on(dense, space_of("half"), artifacts).gradients()
    parts = signals_on(dense, space_of("attn+mlp"), artifacts).gradients()
    assert (blocks.shape, halves.shape, parts.shape) == ((3, 6), (3, 11), (3, 12))
    assert np.array_equal(signals_on(dense, SearchSpace.of_blocks(6)).gradients(), blocks)
    assert halves[:, ::2] == pytest.approx(blocks, rel=1e-4, abs=1e-6)
    assert np.array_equal(halves[:, 1::2], parts[:, 1:-1:2] + parts[:, 2::2])


@pytest.mark.parametrize("granularity", PARTS)
def test_what_is_kept_of_parts_is_not_computed_again(tiny_dense, monkeypatch, granularity):
    dense, artifacts = tiny_dense("llama"), {}
    first = signals_on(dense, space_of("half"), artifacts)
    for name in SCORES:
        first.units(name)
    first.gradients()
    no_work(monkeypatch)
    second = signals_on(dense, space_of(granularity), artifacts)
    for name in SCORES:
        assert len(second.units(name)) == len(second.space.units)
    second.gradients()
    # Weights know nothing of the data.
    assert signals_on(dense, space_of("mlp"), artifacts, limit=2).units("magnitude")


def test_block_scores_are_not_taken_for_those_of_parts(tiny_dense, monkeypatch):
    dense, artifacts = tiny_dense("llama"), {}
    whole = signals_on(dense, artifacts=artifacts)
    for name in SCORES:
        whole.units(name)
        whole.windows(name, 2)
    whole.gradients()
    no_work(monkeypatch)
    parts = signals_on(dense, space_of("attn"), artifacts)
    for ask in [parts.gradients, *(lambda n=n: parts.units(n) for n in SCORES)]:
        with pytest.raises(AssertionError, match="twice"):
            ask()


@pytest.mark.parametrize("granularity", Granularity)
@pytest.mark.parametrize(
    "config",
    [
        OneShotConfig(rank="block_influence"),
        OneShotConfig(rank="taylor"),
        CboConfig(form="gradient", states=3, certify=False),
    ],
    ids=["block_influence", "taylor", "cbo"],
)
def test_searches_by_signals_work_in_every_granularity(tiny_dense, config, granularity):
    dense, space = tiny_dense("llama"), space_of(granularity)
    signals = signals_on(dense, space)
    objective = signals.objective
    tokens = objective.batches[0].tokens
    source = ScoredLosses(dense, objective, choose_runner(dense, tokens).runner)
    found = drive(config, space, 2, 0, Evaluator(objective, source, Store(None, {})), signals)
    mask = found.best.mask
    assert len(space.removed_units(mask)) == 2
    if config.name == "one_shot":
        scores = signals.units(config.rank)
        first = space.units[min(range(len(scores)), key=scores.__getitem__)]
        assert mask.sublayers >= Mask(6, first).sublayers
