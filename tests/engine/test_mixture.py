"""Mixtures: the sum that the formula says, on evaluations that single objectives share."""

from math import hypot, isclose, log

import numpy as np
import pytest

from shoal.config.objectives import OBJECTIVES, AccuracyConfig, KlConfig, MarginConfig, NllConfig
from shoal.core.errors import UsageError
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.data import Choice, ChoiceItem, ChoiceSet, Corpus, Tokenisation
from shoal.engine.evaluator import Evaluator
from shoal.engine.losses import ScoredLosses
from shoal.engine.mixture import MixedTerm, MixtureEvaluator, MixtureSignals
from shoal.engine.selfcheck import choose_runner
from shoal.engine.store import Store
from shoal.objectives.build import build_objective
from shoal.testing.landscapes import Additive
from shoal.testing.signals import LandscapeSignals

CORPUS = Corpus.of("toy", "train", ["what a text this is, and on it goes. " * 30], "here")
ITEMS = ChoiceSet.of(
    "quiz",
    "train",
    [
        ChoiceItem(str(i), tuple(Choice(f"item {i}:", f" {word}") for word in "abcd"[: 2 + i]), 0)
        for i in range(3)
    ],
    "here",
)


def evaluator_of(dense, config, store=None, **options):
    data = CORPUS if "text" in config.reads else ITEMS
    objective = build_objective(
        config, data, dense, tokenisation=Tokenisation(), batch_tokens=64, length=32, limit=4
    )
    widest = max(objective.batches, key=lambda b: b.tokens.input_ids.shape[1])
    runner = choose_runner(dense, widest.tokens, **options).runner
    return Evaluator(objective, ScoredLosses(dense, objective, runner), store or Store(None, {}))


MASKS = [Mask.of(6, blocks) for blocks in ([1], [0, 4], [2, 3, 5])]


@pytest.mark.parametrize("force", [None, "whole"])
def test_guessing_is_what_the_definitions_say(tiny_dense, force):
    """ln V per token for text; ln V minus the entropy for kl; 1 - 1/C for choices."""
    dense = tiny_dense("llama")
    size = dense.module.config.vocab_size
    nll = evaluator_of(dense, NllConfig(), force=force).source.guess()
    assert nll == pytest.approx([log(size)] * 4, rel=1e-5)
    accuracy = evaluator_of(dense, AccuracyConfig(), force=force).source.guess()
    assert accuracy == pytest.approx([1 - 1 / 2, 1 - 1 / 3, 1 - 1 / 4])
    # ln V - KL(p || uniform) is the entropy of p, which KL(p || p) = 0 leaves as ln V - entropy.
    kl = evaluator_of(dense, KlConfig(), force=force)
    tokens = kl.objective.batches[0].tokens
    logits = dense.module(tokens.input_ids).logits.detach().reshape(-1, size)[tokens.rows].double()
    p = logits.log_softmax(-1)
    entropy = -(p.exp() * p).sum(-1)
    first = tokens.segment == 0
    wanted = float((log(size) - entropy[tokens.pick[first]]).mean())
    example = kl.objective.batches[0].examples[0]
    assert kl.source.guess()[example] == pytest.approx(wanted, rel=1e-4)


def test_a_span_mixture_is_the_formula(tiny_dense):
    dense = tiny_dense("gpt2")
    terms = [
        MixedTerm(w, evaluator_of(dense, OBJECTIVES[n]())) for w, n in ((0.7, "nll"), (2, "kl"))
    ]
    # A random tiny model may be worse than guessing; the formula needs one that is not.
    for term, gain in zip(terms, (1.0, 0.5), strict=True):
        known = term.evaluator.evaluate([Mask.dense(6)])[0].mean
        term.evaluator.source.guess = lambda e=term.evaluator, at=known + gain: (
            [at] * e.objective.num_examples
        )
    mixture = MixtureEvaluator(terms, "span", 6)
    for found in mixture.evaluate(MASKS):
        mean = error = 0.0
        for term, gain in zip(terms, (1.0, 0.5), strict=True):
            dense_loss, own = (term.evaluator.evaluate([m])[0] for m in (Mask.dense(6), found.mask))
            mean += term.weight * (own.mean - dense_loss.mean) / gain
            error = hypot(error, term.weight * own.stderr / gain)
        assert isclose(found.mean, mean, rel_tol=1e-9)
        assert isclose(found.stderr, error, rel_tol=1e-9)
    assert mixture.evaluate([Mask.dense(6)])[0].mean == pytest.approx(0.0, abs=1e-9)


def test_a_raw_mixture_adds_losses(tiny_dense):
    dense = tiny_dense("llama")
    margin, nll = evaluator_of(dense, MarginConfig()), evaluator_of(dense, NllConfig())
    mixture = MixtureEvaluator([MixedTerm(0.25, margin), MixedTerm(3, nll)], "raw", 6)
    for found, a, b in zip(
        mixture.evaluate(MASKS), margin.evaluate(MASKS), nll.evaluate(MASKS), strict=True
    ):
        assert found.mean == pytest.approx(0.25 * a.mean + 3 * b.mean)
        assert found.losses == (*a.losses, *b.losses)
        assert found.cost.blocks == pytest.approx(a.cost.blocks + b.cost.blocks)


def test_terms_share_the_evaluations_of_single_objectives(tiny_dense, tmp_path):
    dense = tiny_dense("llama")
    with Store(tmp_path / "s", {"o": "nll"}) as a, Store(tmp_path / "s", {"o": "margin"}) as b:
        nll = evaluator_of(dense, NllConfig(), store=a)
        nll.evaluate(MASKS)
        terms = [MixedTerm(1, nll), MixedTerm(1, evaluator_of(dense, MarginConfig(), store=b))]
        MixtureEvaluator(terms, "raw", 6).evaluate(MASKS)
        assert nll.computed == len(MASKS)
        assert terms[1].evaluator.computed == len(MASKS)


def test_a_term_on_which_the_model_only_guesses_is_refused(tiny_dense):
    dense = tiny_dense("llama")
    nll = evaluator_of(dense, NllConfig())
    nll.source.guess = lambda: [0.0] * 4
    kl = evaluator_of(dense, KlConfig())
    mixture = MixtureEvaluator([MixedTerm(1, nll), MixedTerm(1, kl)], "span", 6)
    with pytest.raises(UsageError, match=r"nll:toy cannot be normalised.*no better than 0"):
        mixture.evaluate(MASKS)


def test_state_scores_are_averaged_and_gradients_refused():
    space = SearchSpace.of_blocks(5)
    both = [LandscapeSignals(Additive.random(5, seed), space) for seed in (1, 2)]
    mixed = MixtureSignals([3, 1], both)
    wanted = [(3 * a + b) / 4 for a, b in zip(*(s.units("taylor") for s in both), strict=True)]
    assert np.allclose(mixed.units("taylor"), wanted)
    assert len(mixed.windows("angular", 2)) == 4
    with pytest.raises(UsageError, match="single objective"):
        mixed.gradients()
