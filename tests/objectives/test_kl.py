"""Divergence from the dense model against full logits, both ways of running masks."""

from math import log

import pytest
import torch

from shoal.config.objectives import KlConfig, NllConfig
from shoal.core.mask import Mask
from shoal.data import Corpus, Tokenisation
from shoal.engine.evaluator import Evaluator
from shoal.engine.losses import ScoredLosses
from shoal.engine.selfcheck import choose_runner
from shoal.engine.store import Store
from shoal.models.batch import TokenBatch
from shoal.models.head import LogitScorer
from shoal.models.masked import muted
from shoal.objectives.base import ExampleBatch
from shoal.objectives.build import build_objective
from shoal.objectives.kl import Divergence
from shoal.objectives.nll import NegativeLogLikelihood

TEXTS = ("a short one", "one that is rather longer than it, by far, is it not?", "and one more.")
MASKS = [Mask.of(6, blocks) for blocks in ((), (0,), (5,), (1, 4), (2, 3, 4))]


def build(dense, name="lambada", config=KlConfig, **options):
    settings = {"tokenisation": Tokenisation(), "batch_tokens": 64, "length": 24, "limit": 5}
    corpus = Corpus.of(name, "train", TEXTS * 4 if name == "plain" else TEXTS, "here")
    return build_objective(config(), corpus, dense, **(settings | options))


def evaluate(dense, objective, masks, force=None):
    choice = choose_runner(dense, objective.batches[0].tokens, force=force)
    assert choice.runner.name == (force or "replay"), choice.reason
    source = ScoredLosses(dense, objective, choice.runner)
    return Evaluator(objective, source, Store(None, {}, objective.weights)).evaluate(masks)


def table(dense, mask, tokens):
    with muted(dense.blocks, mask), torch.inference_mode():
        return dense.module(torch.tensor([tokens]), use_cache=False).logits[0].double()


def oracle(dense, mask, tokens):
    """Mean over all tokens but the first of KL(dense || pruned) before it, term by term."""
    p = table(dense, Mask.dense(6), tokens)[:-1].log_softmax(-1)
    q = table(dense, mask, tokens)[:-1].log_softmax(-1)
    return float((p.exp() * (p - q)).sum(-1).mean())


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2", "mistral", "granite", "lfm2"])
@pytest.mark.parametrize("force", [None, "whole"])
def test_losses_equal_full_logits(tiny_dense, family, force):
    dense = tiny_dense(family)
    texts = [dense.tokenizer(t, add_special_tokens=False).input_ids[:24] for t in TEXTS]
    for evaluation in evaluate(dense, build(dense), MASKS, force):
        expected = [oracle(dense, evaluation.mask, t) for t in texts]
        assert evaluation.losses == pytest.approx(expected, abs=1e-5)
        if len(evaluation.mask):
            assert min(evaluation.losses) > 1e-3
        weights = [len(t) - 1 for t in texts]
        mean = sum(w * x for w, x in zip(weights, expected, strict=True)) / sum(weights)
        assert evaluation.mean == pytest.approx(mean, abs=1e-5)


@pytest.mark.parametrize("force", [None, "whole"])
def test_the_dense_model_loses_nothing(tiny_dense, force):
    dense = tiny_dense("qwen3")
    for batch_tokens in (1, 4096):
        objective = build(dense, "plain", batch_tokens=batch_tokens)
        (evaluation,) = evaluate(dense, objective, MASKS[:1], force)
        assert list(evaluation.losses) == [0.0] * 5


def test_micro_batches_change_nothing(tiny_dense):
    dense = tiny_dense("mistral")
    found = {}
    for size in (1, 4096):
        objective = build(dense, batch_tokens=size)
        assert len(objective.batches) == (3 if size == 1 else 1)
        found[size] = evaluate(dense, objective, MASKS)
    for one, other in zip(found[1], found[4096], strict=True):
        assert one.losses == pytest.approx(other.losses, abs=1e-5)


def test_rows_that_tokens_share_count_once_per_token():
    """Texts of 2 and 3 scored tokens on 3 rows; the second row stands before three of them."""
    tokens = TokenBatch(
        input_ids=torch.zeros(1, 3, dtype=torch.long),
        rows=torch.arange(3),
        pick=torch.tensor([0, 1, 1, 2, 1]),
        targets=torch.arange(5),
        segment=torch.tensor([0, 0, 1, 1, 1]),
        num_segments=2,
    )
    torch.manual_seed(0)
    own, base = torch.randn(3, 7), torch.randn(3, 7)
    p, q = base.double().log_softmax(-1), own.double().log_softmax(-1)
    kl = (p.exp() * (p - q)).sum(-1)
    found = Divergence().losses(LogitScorer(own), ExampleBatch(tokens, (0, 1)), LogitScorer(base))
    expected = torch.stack([(kl[0] + kl[1]) / 2, (2 * kl[1] + kl[2]) / 3])
    assert found.dtype == torch.float64
    assert torch.allclose(found, expected, atol=1e-6)


def test_relation_to_likelihood_and_entropy(tiny_dense):
    """From a certain reference it is the NLL; of a uniform model it is log V less the entropy."""
    dense = tiny_dense("llama")
    (batch, *_) = build(dense, batch_tokens=4096).batches
    tokens = batch.tokens
    with torch.inference_mode():
        logits = dense.module(tokens.input_ids, use_cache=False).logits.flatten(0, 1)[tokens.rows]
    own = LogitScorer(logits)
    certain = torch.full_like(logits, -torch.inf)
    certain[tokens.pick, tokens.targets] = 3.0
    nll = NegativeLogLikelihood().losses(own, batch)
    assert torch.allclose(Divergence().losses(own, batch, LogitScorer(certain)), nll, atol=1e-6)
    p = logits.double().log_softmax(-1)
    entropy = tokens.segment_sums(-(p.exp() * p).sum(-1)) / tokens.segment_lengths()
    uniform = Divergence().losses(LogitScorer(torch.zeros_like(logits)), batch, own)
    assert torch.allclose(uniform, log(128) - entropy, atol=1e-5)


def test_it_sees_what_the_text_does_not_say(tiny_dense):
    """Removing a block may make a text likelier, but never brings a model closer to the dense."""
    dense = tiny_dense("gpt2")
    masks = [Mask.dense(6), *(Mask.of(6, [i]) for i in range(6))]
    kl = evaluate(dense, build(dense), masks)
    nll = evaluate(dense, build(dense, config=NllConfig), masks)
    assert all(x > 0 for e in kl[1:] for x in e.losses)
    lowest = min(x - y for e in nll[1:] for x, y in zip(e.losses, nll[0].losses, strict=True))
    assert lowest < 0, "some text must have become likelier"


def test_a_reference_is_needed(tiny_dense):
    objective = build(tiny_dense("llama"))
    assert objective.needs_reference
    with pytest.raises(ValueError, match="needs the dense model's scorer"):
        objective.losses(LogitScorer(torch.zeros(1, 2)), objective.batches[0])
