"""Mixtures: the sum that the formula says, on evaluations that single objectives share."""

from dataclasses import replace
from math import hypot, isclose

import numpy as np
import pytest

from shoal.config.objectives import KlConfig, MarginConfig, NllConfig, TrajectoryConfig
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


RANDOM = [Mask.of(6, blocks) for blocks in ([0, 2], [1, 5], [3, 4])]


def test_a_span_mixture_is_the_formula(tiny_dense):
    dense = tiny_dense("gpt2")
    configs = {0.7: KlConfig(), 2.0: TrajectoryConfig(new_tokens=4, prompt_tokens=8)}
    terms = [MixedTerm(weight, evaluator_of(dense, c)) for weight, c in configs.items()]
    scales = []
    for term in terms:
        known, *random = term.evaluator.evaluate([Mask.dense(6), *RANDOM])
        gaps = np.array([e.mean for e in random]) - known.mean
        scales.append((known.mean, np.sqrt((gaps**2).mean())))
    mixture = MixtureEvaluator(terms, RANDOM)
    for found in mixture.evaluate(MASKS):
        mean = error = 0.0
        for term, (zero, span) in zip(terms, scales, strict=True):
            own = term.evaluator.evaluate([found.mask])[0]
            mean += term.weight * (own.mean - zero) / span
            error = hypot(error, term.weight * own.stderr / span)
        assert isclose(found.mean, mean, rel_tol=1e-9)
        assert isclose(found.stderr, error, rel_tol=1e-9)
    assert mixture.evaluate([Mask.dense(6)])[0].mean == pytest.approx(0.0, abs=1e-9)


def test_a_raw_mixture_adds_losses(tiny_dense):
    dense = tiny_dense("llama")
    margin, nll = evaluator_of(dense, MarginConfig()), evaluator_of(dense, NllConfig())
    mixture = MixtureEvaluator([MixedTerm(0.25, margin), MixedTerm(3, nll)])
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
        MixtureEvaluator(terms).evaluate(MASKS)
        assert nll.computed == len(MASKS)
        assert terms[1].evaluator.computed == len(MASKS)


def test_a_term_that_random_masks_lower_keeps_its_sign(tiny_dense):
    """What random removal lowers is still better when it is lower."""
    nll = evaluator_of(tiny_dense("llama"), NllConfig())
    own = nll.evaluate
    nll.evaluate = lambda masks: [replace(e, mean=-0.5 * len(e.mask)) for e in own(masks)]
    one, two = (
        e.mean for e in MixtureEvaluator([MixedTerm(1, nll)], RANDOM).evaluate([MASKS[0], MASKS[1]])
    )
    assert (one, two) == (-0.5, -1.0)


def test_a_term_that_never_changes_is_refused(tiny_dense):
    nll = evaluator_of(tiny_dense("llama"), NllConfig())
    own = nll.evaluate
    nll.evaluate = lambda masks: [replace(e, mean=1.0) for e in own(masks)]
    with pytest.raises(UsageError, match="nll:toy cannot be normalised: removing random"):
        MixtureEvaluator([MixedTerm(1, nll)], RANDOM).evaluate(MASKS)


def test_state_scores_are_averaged_and_gradients_refused():
    space = SearchSpace.of_blocks(5)
    both = [LandscapeSignals(Additive.random(5, seed), space) for seed in (1, 2)]
    mixed = MixtureSignals([3, 1], both)
    wanted = [(3 * a + b) / 4 for a, b in zip(*(s.units("taylor") for s in both), strict=True)]
    assert np.allclose(mixed.units("taylor"), wanted)
    assert len(mixed.windows("angular", 2)) == 4
    with pytest.raises(UsageError, match="single objective"):
        mixed.gradients()
