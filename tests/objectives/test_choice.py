"""Choice objectives against a loop over single forwards; packed against rows."""

import math

import pytest
import torch

from shoal.config.objectives import AccuracyConfig, LikelihoodConfig, MarginConfig
from shoal.core.errors import UsageError
from shoal.core.mask import Mask
from shoal.data import Choice, ChoiceItem, ChoiceSet, Corpus, Tokenisation, encode_choices
from shoal.engine.evaluator import Evaluator
from shoal.engine.losses import ScoredLosses
from shoal.engine.selfcheck import choose_runner
from shoal.engine.store import Store
from shoal.models.masked import muted
from shoal.objectives.build import build_objective
from shoal.objectives.choice import Margin
from shoal.objectives.choice_batches import choice_batches

MASKS = [Mask.dense(6), Mask.of(6, [2]), Mask.of(6, [0, 4])]


def item(i, choices, gold=0, prompt="the cat sat on a"):
    return ChoiceItem(str(i), tuple(Choice(prompt, c) for c in choices), gold)


ITEMS = ChoiceSet.of(
    "toy",
    "train",
    [
        item(0, (" mat", " large dog there", " x"), 2),
        item(1, (" one", " two"), 1, "question: how many are there?\nanswer:"),
        item(2, (" a", " b", " c", " d", " e"), 3, "a longer prompt than the other ones, is it:"),
        # Contexts differ and the continuation is shared, as in winogrande.
        ChoiceItem("3", (Choice("it was Ann", " who won"), Choice("it was Bob", " who won")), 1),
        item(4, (" same start one", " same start two"), 0, "q"),
    ],
    "here",
)


def single_scores(dense, mask, choice):
    """Token log-probabilities of one choice, by one plain forward over it alone."""
    ids = torch.tensor([choice.tokens])
    with muted(dense.blocks, mask), torch.inference_mode():
        table = dense.module(ids, use_cache=False).logits[0].double().log_softmax(-1)
    first = len(choice.tokens) - choice.scored
    return table[torch.arange(first - 1, ids.shape[1] - 1), ids[0, first:]]


def oracle(dense, mask, config):
    losses = []
    for encoded in encode_choices(ITEMS, dense.tokenizer, Tokenisation()):
        scores = []
        for choice in encoded.choices:
            tokens = single_scores(dense, mask, choice)
            size = {
                "token": len(tokens),
                "byte": choice.num_bytes,
                "char": choice.num_chars,
                "sum": 1,
            }[config.normalise]
            scores.append(float(tokens.sum()) / size)
        right = scores[encoded.gold]
        wrong = [s for i, s in enumerate(scores) if i != encoded.gold]
        if config.name == "margin":
            join = {"mean": sum(wrong) / len(wrong), "max": max(wrong)}
            total = sum(w - right for w in wrong)
            losses.append(total if config.pair == "sum" else join[config.pair] - right)
        elif config.name == "likelihood":
            losses.append(-right)
        else:
            losses.append(float(scores.index(max(scores)) != encoded.gold))
    return losses


def evaluate(dense, config, *, packed, batch_tokens=64):
    objective = build_objective(
        config,
        ITEMS,
        dense,
        tokenisation=Tokenisation(),
        batch_tokens=batch_tokens,
        pack_choices=packed,
    )
    runner = choose_runner(dense, objective.batches[0].tokens).runner
    return Evaluator(objective, ScoredLosses(dense, objective, runner), Store(None, {})).evaluate(
        MASKS
    )


CONFIGS = [
    *(MarginConfig(normalise=n) for n in ("token", "sum", "byte")),
    *(MarginConfig(pair=p) for p in ("sum", "max")),
    LikelihoodConfig(),
    *(AccuracyConfig(normalise=n) for n in ("token", "sum", "byte", "char")),
]


@pytest.mark.parametrize("config", CONFIGS, ids=repr)
@pytest.mark.parametrize("packed", [True, False])
def test_losses_equal_one_forward_per_choice(tiny_dense, config, packed):
    dense = tiny_dense("llama")
    for evaluation in evaluate(dense, config, packed=packed):
        expected = oracle(dense, evaluation.mask, config)
        assert evaluation.losses == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("family", ["gpt2", "opt", "qwen3_moe", "phi3", "olmo2"])
def test_packed_choices_agree_where_they_are_used(tiny_dense, family):
    dense = tiny_dense(family)
    objective = build_objective(
        MarginConfig(), ITEMS, dense, tokenisation=Tokenisation(), batch_tokens=64
    )
    assert objective.data["packed_choices"] is True
    found = evaluate(dense, MarginConfig(), packed=None)
    for evaluation in found:
        expected = oracle(dense, evaluation.mask, MarginConfig())
        assert evaluation.losses == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("family", ["bloom", "mistral", "lfm2", "gemma3_text"])
def test_choices_get_rows_of_their_own_where_packing_would_be_wrong(tiny_dense, family):
    """ALiBi takes positions from the mask, small windows end, convolutions see the row."""
    dense = tiny_dense(family)
    objective = build_objective(
        MarginConfig(), ITEMS, dense, tokenisation=Tokenisation(), batch_tokens=64
    )
    assert objective.data["packed_choices"] is False
    for evaluation in evaluate(dense, MarginConfig(), packed=None):
        expected = oracle(dense, evaluation.mask, MarginConfig())
        assert evaluation.losses == pytest.approx(expected, abs=1e-5)


def test_a_prompt_is_run_once_per_item(tiny_dense):
    items = encode_choices(ITEMS, tiny_dense("llama").tokenizer, Tokenisation())
    count = {
        p: sum(b.tokens.num_tokens for b in choice_batches(items, 10**6, packed=p))
        for p in (True, False)
    }
    needed = 0
    for encoded in items:
        choices = [c.tokens[:-1] for c in encoded.choices]
        prefixes = {c[: n + 1] for c in choices for n in range(len(c))}
        context = min(len(c.tokens) - c.scored for c in encoded.choices)
        # Branches are not shared beyond the prompt, even where they begin alike.
        prompt = {p for p in prefixes if len(p) <= context}
        needed += len(prompt) + sum(max(0, len(c) - context) for c in choices)
    rows = sum(b.tokens.input_ids.shape[0] for b in choice_batches(items, 10**6, packed=True))
    assert needed <= count[True] < needed + rows * 256
    assert count[True] < 0.75 * count[False]


def test_micro_batches_respect_their_size(tiny_dense):
    items = encode_choices(ITEMS, tiny_dense("llama").tokenizer, Tokenisation()) * 7
    for packed in (True, False):
        batches = choice_batches(items, 256, packed=packed)
        assert sorted(i for b in batches for i in b.examples) == list(range(len(items)))
        for b in batches:
            assert b.tokens.num_tokens <= (512 if packed else 256)


def test_margin_of_scores_by_hand():
    """Two items with scores (-1, -3, -2; gold 0) and (-4, -1; gold 0)."""
    scores = torch.tensor([[-1.0, -3.0, -2.0], [-4.0, -1.0, -math.inf]], dtype=torch.float64)
    for pair, expected in (("mean", [-1.5, 3.0]), ("sum", [-3.0, 3.0]), ("max", [-1.0, 3.0])):
        objective = Margin()
        objective.pair = pair
        objective.choice_scores = lambda scorer, batch: scores
        layout = type("Layout", (), {"gold": torch.tensor([0, 0])})
        batch = type("Batch", (), {"layout": layout})
        assert objective.losses(None, batch).tolist() == expected


def test_wrong_kinds_of_data_are_refused(tiny_dense):
    dense = tiny_dense("llama")
    corpus = Corpus.of("text", "train", ["hello " * 100], "here")
    settings = {"tokenisation": Tokenisation(), "batch_tokens": 64}
    with pytest.raises(UsageError, match="reads multiple choice, but text is text"):
        build_objective(MarginConfig(), corpus, dense, **settings)


def test_options_are_part_of_the_fingerprint(tiny_dense):
    dense = tiny_dense("llama")
    prints = {
        build_objective(
            c, ITEMS, dense, tokenisation=Tokenisation(), batch_tokens=64, pack_choices=True
        ).fingerprint
        for c in CONFIGS
    }
    assert len(prints) == len(CONFIGS)
