"""Losses on generated text: pruned models equal the muted dense one; searches run on them."""

import logging
import math

import pytest
import torch

from shoal.config.objectives import ExactMatchConfig
from shoal.config.searches import GreedyConfig, TaleConfig
from shoal.core.errors import UnsupportedModelError
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.data import PromptItem, PromptSet, Tokenisation
from shoal.engine import generated
from shoal.engine.driver import drive
from shoal.engine.evaluator import Evaluator
from shoal.engine.forecast import forecast
from shoal.engine.generated import GeneratedLosses, estimate_generation
from shoal.engine.store import Store
from shoal.models.load import load_dense
from shoal.models.masked import muted
from shoal.objectives.build import build_objective
from shoal.testing.tiny import tiny_model, tiny_tokenizer

MASKS = [Mask.dense(6), Mask.of(6, [1, 3]), Mask.of(6, [0, 5])]
TEXTS = ("the cat sat on a", "q", "a longer prompt than the others:", "what is it?")
SPACE = SearchSpace.of_blocks(6)


def build(dense, answers=("42", "42", "42", "42"), **config):
    items = [
        PromptItem(str(i), text, (answer,))
        for i, (text, answer) in enumerate(zip(TEXTS, answers, strict=True))
    ]
    return build_objective(
        ExactMatchConfig(**({"new_tokens": 6, "match": "prefix"} | config)),
        PromptSet.of("toy", "train", items, "here"),
        dense,
        tokenisation=Tokenisation(),
        batch_tokens=64,
    )


def written(objective, model):
    """What a model answers, in order."""
    found = {}
    with torch.inference_mode():
        for batch in objective.batches:
            found |= dict(zip(batch.examples, objective.texts(model, batch), strict=True))
    return [found[i] for i in range(objective.num_examples)]


def solvable(dense):
    """An objective whose dense answers are right."""
    return build(dense, written(build(dense), dense.module), match="text")


class Recording(GeneratedLosses):
    """Keeps the texts behind the losses."""

    def __init__(self, dense, objective):
        super().__init__(dense, objective)
        self.texts = {}
        inner = objective.texts

        def texts(model, batch):
            found = inner(model, batch)
            self.texts.setdefault(self.mask, {}).update(zip(batch.examples, found, strict=True))
            return found

        objective.texts = texts

    def _model(self, mask):
        self.mask = mask
        return super()._model(mask)


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2", "lfm2"])
def test_pruned_models_write_what_the_muted_one_does(tiny_dense, family):
    dense = tiny_dense(family)
    source = Recording(dense, build(dense))
    every = range(len(source.objective.batches))
    assert len(list(source.run(every, MASKS))) == len(every) * len(MASKS)
    expected = build(dense)
    for mask in MASKS:
        with muted(dense.blocks, mask):
            texts = written(expected, dense.module)
        assert [source.texts[mask][i] for i in range(len(TEXTS))] == texts
    assert not source.muted


def test_masks_that_cannot_be_built_are_muted(tiny_dense, monkeypatch, caplog):
    dense = tiny_dense("llama")
    hooks = [dict(block._forward_hooks) for block in dense.blocks.layers]
    usual = Evaluator(solvable(dense), GeneratedLosses(dense, solvable(dense)), Store(None, {}))

    def refuse(dense, mask):
        raise UnsupportedModelError("no such mask")

    expected = usual.evaluate(MASKS)
    monkeypatch.setattr(generated, "pruned_model", refuse)
    source = GeneratedLosses(dense, solvable(dense))
    with caplog.at_level(logging.WARNING):
        found = Evaluator(source.objective, source, Store(None, {})).evaluate(MASKS)
    assert [e.losses for e in found] == [e.losses for e in expected]
    assert source.muted == MASKS[1:]
    assert caplog.text.count("no such mask") == 1
    assert source.passes.naive == usual.passes.naive
    assert source.passes.blocks > source.passes.naive
    assert [dict(block._forward_hooks) for block in dense.blocks.layers] == hooks


def test_a_mask_of_every_block_is_evaluated(tiny_dense):
    dense = tiny_dense("llama")
    source = GeneratedLosses(dense, build(dense))
    evaluator = Evaluator(source.objective, source, Store(None, {}))
    (nothing,) = evaluator.evaluate([Mask.of(6, range(6))])
    assert nothing.finite
    assert source.muted == [nothing.mask]


def test_passes_count_every_call_of_the_model(tiny_dense):
    dense = tiny_dense("llama")
    source = GeneratedLosses(dense, build(dense, stop=("@@",)))
    calls = []
    with dense.module.register_forward_pre_hook(lambda *_: calls.append(1)):
        list(source.run([0], [MASKS[0]]))
    assert source.passes.heads == len(calls) > 1
    assert source.passes.blocks == source.passes.naive == 6 * len(calls)
    before = source.passes.heads
    list(source.run([0], [MASKS[1]]))
    assert source.passes.blocks == 6 * before + 4 * (source.passes.heads - before)


def test_a_broken_mask_ranks_last():
    dense = load_dense(tiny_model("llama"), tokenizer=tiny_tokenizer())
    objective = build(dense)
    with torch.no_grad():
        dense.blocks.layers[2].mlp.down_proj.weight.fill_(math.nan)
    source = GeneratedLosses(dense, objective)
    evaluator = Evaluator(objective, source, Store(None, {}))
    broken, right = evaluator.evaluate([Mask.of(6, [1]), Mask.of(6, [2])])
    assert right.finite
    assert not broken.finite
    assert broken.rank_key > right.rank_key
    assert evaluator.not_finite == [broken.mask]


@pytest.mark.parametrize("config", [GreedyConfig(), TaleConfig(epsilon=1.0)])
def test_searches_run_on_generated_answers(tiny_dense, config):
    dense = tiny_dense("llama")
    objective = solvable(dense)
    evaluator = Evaluator(objective, GeneratedLosses(dense, objective), Store(None, {}))
    outcome = drive(config, SPACE, 2, 0, evaluator, signals=None)
    assert outcome.dense.mean == 0.0
    assert 0.0 <= outcome.best.mean <= 1.0
    assert set(outcome.best.losses) <= {0.0, 1.0}
    assert evaluator.computed == outcome.evaluations + 1
    if config.fixed_count:
        assert len(outcome.best.mask.blocks) == 2


def test_what_a_search_will_take(tiny_dense):
    dense = tiny_dense("llama")
    objective = build(dense)
    small = estimate_generation(dense, objective, forecast(GreedyConfig(), SPACE, 1, 0))
    large = estimate_generation(dense, objective, forecast(GreedyConfig(), SPACE, 5, 0))
    weights = sum(p.numel() * p.element_size() for p in dense.module.parameters())
    assert 0 < small.seconds < large.seconds
    assert small.bytes > weights
    assert small.cache_bytes == 0
