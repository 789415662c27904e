"""The evaluator: same numbers for every cache budget, counted work, no mask twice, NaN last."""

import math
import os
import random

import numpy as np
import pytest
import torch

from shoal.config.objectives import NllConfig
from shoal.config.searches import GreedyConfig
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.data import Corpus, Tokenisation
from shoal.engine.driver import drive
from shoal.engine.estimate import estimate
from shoal.engine.evaluator import Evaluator
from shoal.engine.forecast import MadeUpSignals, forecast
from shoal.engine.losses import ScoredLosses
from shoal.engine.runners import Passes, ReplayRunner
from shoal.engine.selfcheck import choose_runner
from shoal.engine.store import Store
from shoal.engine.trie import naive_passes, shared_passes
from shoal.models.head import LogitScorer
from shoal.models.tail import find_head
from shoal.objectives.build import build_objective

SPACE = SearchSpace.of_blocks(6)


def objective_on(dense, blocks=4, batch_tokens=64):
    corpus = Corpus.of("toy", "train", ["what a text this is, and on it goes. " * 30], "here")
    return build_objective(
        NllConfig(),
        corpus,
        dense,
        tokenisation=Tokenisation(),
        batch_tokens=batch_tokens,
        length=32,
        limit=blocks,
    )


def evaluator_on(dense, cache_bytes=0, store=None, on_step=None):
    objective = objective_on(dense)
    head = find_head(dense, objective.batches[0].tokens)
    runner = ReplayRunner(dense, head, cache_bytes)
    source = ScoredLosses(dense, objective, runner)
    return Evaluator(objective, source, store if store is not None else Store(None, {}), on_step)


SIGNALS = MadeUpSignals(SPACE, random.Random(0))


@pytest.mark.parametrize("cache_bytes", [0, 2 * 32 * 32 * 4 * 3, 10**9])
def test_the_cache_changes_work_and_no_number(tiny_dense, cache_bytes):
    dense = tiny_dense("llama")
    plain, cached = evaluator_on(dense), evaluator_on(dense, cache_bytes)
    mask = SPACE.dense
    for _ in range(4):
        masks = SPACE.extensions(mask)
        expected, found = plain.evaluate(masks), cached.evaluate(masks)
        assert [e.losses for e in found] == [e.losses for e in expected]
        mask = min(expected, key=lambda e: e.rank_key).mask
    assert cached.passes.naive == plain.passes.naive
    if cache_bytes == 0:
        assert cached.passes.blocks == plain.passes.blocks
    else:
        assert cached.passes.blocks < plain.passes.blocks


def test_work_is_what_the_trie_says(tiny_dense):
    evaluator = evaluator_on(tiny_dense("llama"))
    rng = np.random.default_rng(0)
    masks = list({SPACE.sample(rng, k) for k in (1, 2, 3) for _ in range(5)})
    evaluator.evaluate(masks)
    batches = len(evaluator.objective.batches)
    assert evaluator.passes == Passes(
        blocks=batches * shared_passes(masks),
        naive=batches * naive_passes(masks),
        heads=batches * len(masks),
    )


def test_order_is_kept_and_nothing_is_computed_twice(tiny_dense):
    evaluator = evaluator_on(tiny_dense("llama"))
    masks = [Mask.of(6, b) for b in ([3], [1], [3], [5, 0], [1])]
    found = evaluator.evaluate(masks)
    assert [e.mask for e in found] == masks
    assert evaluator.computed == 3
    evaluator.evaluate(masks)
    assert evaluator.computed == 3
    assert evaluator.evaluate([Mask.of(6, [0, 5])])[0] == found[3]
    assert evaluator.computed == 3


def test_steps_are_reported(tiny_dense):
    steps = []
    evaluator = evaluator_on(tiny_dense("llama"), on_step=lambda *s: steps.append(s))
    evaluator.evaluate([Mask.of(6, [1]), Mask.of(6, [2])])
    total = 2 * len(evaluator.objective.batches)
    assert steps == [(i + 1, total) for i in range(total)]


def test_masks_whose_loss_is_not_finite_rank_last_and_are_reported(tiny_dense, caplog, tmp_path):
    """Every mask that lacks the best block's removal overflows; the search must take it."""
    evaluator = evaluator_on(tiny_dense("llama"), store=Store(tmp_path / "s.sqlite", {}))
    own = evaluator.source.runner.run

    def overflowing(index, batch, masks):
        for mask, scorer in own(index, batch, masks):
            if mask.blocks and 4 not in mask.blocks:
                size = (len(batch.rows), 128)
                scorer = LogitScorer(torch.full(size, math.nan))
            yield mask, scorer

    evaluator.source.runner.run = overflowing
    outcome = drive(GreedyConfig(), SPACE, 2, 0, evaluator, SIGNALS)
    assert 4 in outcome.best.mask.blocks
    assert outcome.best.finite
    assert {Mask.of(6, [b]) for b in range(6) if b != 4} == set(evaluator.not_finite)
    assert "not finite" in caplog.text
    again = evaluator_on(tiny_dense("llama"), store=evaluator.store)
    drive(GreedyConfig(), SPACE, 2, 0, again, SIGNALS)
    assert again.computed == 0
    assert set(again.not_finite) == set(evaluator.not_finite)


def test_two_searches_share_a_store(tiny_dense, tmp_path):
    dense = tiny_dense("llama")
    with Store(tmp_path / "s.sqlite", {"a": 1}) as store:
        first = evaluator_on(dense, store=store)
        drive(GreedyConfig(), SPACE, 3, 0, first, SIGNALS)
    with Store(tmp_path / "s.sqlite", {"a": 1}) as store:
        second = evaluator_on(dense, store=store)
        drive(GreedyConfig(), SPACE, 3, 0, second, SIGNALS)
        assert second.computed == 0
        drive(GreedyConfig(), SPACE, 4, 0, second, SIGNALS)
        assert second.computed == 3


def test_the_estimate_is_of_the_right_size_and_leaves_no_trace(tiny_dense):
    dense = tiny_dense("llama")
    objective = objective_on(dense)
    runner = choose_runner(dense, objective.batches[0].tokens, cache_bytes=10**6).runner
    expected = forecast(GreedyConfig(), SPACE, 3, 0)
    found = estimate(dense, objective, runner, expected, 10**6)
    assert runner.passes == Passes()
    assert 0 < found.seconds < 60
    weights = sum(p.numel() * p.element_size() for p in dense.module.parameters())
    assert weights < found.bytes < weights + 2**27
    assert 0 < found.cache_bytes <= 10**6 * len(objective.batches)


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
def test_the_cache_keeps_to_its_budget(tiny_dense):
    dense = tiny_dense("llama")
    budget = 2 * 32 * 32 * 4 * 5
    evaluator = evaluator_on(dense, budget)
    evaluator.evaluate(SPACE.extensions(SPACE.dense))
    for cache in evaluator.source.runner._caches.values():
        held = sum(s.numel() * s.element_size() for s in cache._states.values())
        assert 0 < held <= budget


def test_what_takes_long_is_stored_in_portions(tiny_dense, monkeypatch, tmp_path):
    """A kill loses a portion, not a round; the losses are those of one batch."""
    steps = []
    with Store(tmp_path / "s.sqlite", {}) as store:
        whole = evaluator_on(tiny_dense("llama"))
        evaluator = evaluator_on(
            tiny_dense("llama"), store=store, on_step=lambda *s: steps.append(s)
        )
        evaluator.evaluate([SPACE.dense])
        monkeypatch.setattr(evaluator, "_per_mask", 25.0)
        steps.clear()
        masks = SPACE.extensions(SPACE.dense)
        found = evaluator.evaluate(masks)
        first = store.batches()[1][0]
    assert len(first) == 2
    assert [e.mask for e in found] == masks
    assert [e.losses for e in found] == [e.losses for e in whole.evaluate(masks)]
    total = len(masks) * len(evaluator.objective.batches)
    assert steps == [(i + 1, total) for i in range(total)]
