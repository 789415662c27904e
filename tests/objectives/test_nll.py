"""NLL against full logits, for blocks and for documents of different lengths."""

import pytest
import torch

from shoal.config.objectives import NllConfig
from shoal.core.mask import Mask
from shoal.data import Corpus, Tokenisation
from shoal.engine.evaluator import Evaluator
from shoal.engine.losses import ScoredLosses
from shoal.engine.selfcheck import choose_runner
from shoal.engine.store import Store
from shoal.models.masked import skipped
from shoal.objectives.build import build_objective

TEXTS = ("a short one", "one that is rather longer than it, by far, is it not?", "and one more.")


def oracle(dense, mask, tokens):
    ids = torch.tensor([tokens])
    with skipped(dense.blocks, mask), torch.inference_mode():
        table = dense.module(ids, use_cache=False).logits[0].double().log_softmax(-1)
    return -float(table[:-1].gather(1, ids[0, 1:, None]).mean())


def build(dense, corpus, **options):
    settings = {"tokenisation": Tokenisation(), "batch_tokens": 64, "length": 24, "limit": 5}
    return build_objective(NllConfig(), corpus, dense, **(settings | options))


@pytest.mark.parametrize("name", ["plain", "lambada"])
@pytest.mark.parametrize("batch_tokens", [1, 64, 4096])
def test_losses_equal_full_logits(tiny_dense, name, batch_tokens):
    dense = tiny_dense("gpt2")
    corpus = Corpus.of(name, "train", TEXTS * 4, "here")
    objective = build(dense, corpus, batch_tokens=batch_tokens, limit=3)
    runner = choose_runner(dense, objective.batches[0].tokens).runner
    masks = [Mask.dense(6), Mask.of(6, [1, 4])]
    store = Store(None, {}, objective.weights)
    for evaluation in Evaluator(objective, ScoredLosses(dense, objective, runner), store).evaluate(
        masks
    ):
        if name == "plain":
            ids = dense.tokenizer("".join(TEXTS * 4), add_special_tokens=False).input_ids
            texts = [ids[i : i + 24] for i in (0, 24, 48)]
        else:
            texts = [dense.tokenizer(t, add_special_tokens=False).input_ids[:24] for t in TEXTS]
        expected = [oracle(dense, evaluation.mask, t) for t in texts]
        assert evaluation.losses == pytest.approx(expected, abs=1e-5)
        tokens = sum(len(t) - 1 for t in texts)
        mean = sum(x * (len(t) - 1) for x, t in zip(expected, texts, strict=True)) / tokens
        assert evaluation.mean == pytest.approx(mean, abs=1e-5)


def test_padding_changes_nothing(tiny_dense):
    """Long and short documents share a micro-batch; each scores as it does alone."""
    dense = tiny_dense("mistral")
    corpus = Corpus.of("lambada", "train", TEXTS, "here")
    losses = {}
    for size in (1, 4096):
        objective = build(dense, corpus, batch_tokens=size)
        assert len(objective.batches) == (3 if size == 1 else 1)
        runner = choose_runner(dense, objective.batches[0].tokens).runner
        store = Store(None, {}, objective.weights)
        losses[size] = Evaluator(objective, ScoredLosses(dense, objective, runner), store).evaluate(
            [Mask.of(6, [3])]
        )
    assert losses[1][0].losses == pytest.approx(losses[4096][0].losses, abs=1e-5)
