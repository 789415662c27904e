"""State scores against a loop over single texts; padding, windows and the final norm."""

import copy
import math

import numpy as np
import pytest
import torch

from shoal.config.objectives import MarginConfig, NllConfig
from shoal.core.errors import UsageError
from shoal.data import (
    Choice,
    ChoiceItem,
    ChoiceSet,
    Corpus,
    Tokenisation,
    encode_choices,
    encode_corpus,
)
from shoal.models.dense import DenseModel
from shoal.models.hidden import hidden_of
from shoal.objectives.build import build_objective
from shoal.objectives.scores.states import state_windows
from shoal.objectives.scores.table import STATES

NLL = NllConfig()
LINES = ["a short one", "this is the second document , a bit longer .", "and a third , in between"]
TEXTS = Corpus.of("lambada", "train", LINES, "here")
ITEMS = ChoiceSet.of(
    "toy",
    "train",
    [
        ChoiceItem("0", tuple(Choice("the cat sat on a", c) for c in (" mat", " dog there")), 0),
        ChoiceItem("1", tuple(Choice("how many?", c) for c in (" one", " b", " three")), 1),
    ],
    "here",
)


def objective_on(dense, config=NLL, data=TEXTS, **options):
    options = {"batch_tokens": 160, "length": 64, **options}
    return build_objective(config, data, dense, tokenisation=Tokenisation(), **options)


def states(dense, tokens):
    """States before every block and after the last [depth + 1, T, d], by one plain forward."""
    last = []
    hook = dense.blocks.layers[-1].register_forward_hook(
        lambda module, args, output: last.append(hidden_of(output))
    )
    with torch.inference_mode():
        output = dense.module(torch.tensor([tokens]), use_cache=False, output_hidden_states=True)
    hook.remove()
    entering = output.hidden_states[: dense.depth]
    return torch.stack([*entering, last[0]])[:, 0].double().numpy()


def expected(name, x, y):
    """A score of each position, from the states [P, d] at both ends."""
    size = np.linalg.norm
    cosine = (x * y).sum(-1) / (size(x, axis=-1) * size(y, axis=-1))
    return {
        "block_influence": 1 - cosine,
        "angular": np.arccos(cosine.clip(-1, 1)) / math.pi,
        "relative_magnitude": size(y - x, axis=-1) / size(y, axis=-1),
        "norm_ratio": size(y, axis=-1) / size(x, axis=-1),
    }[name]


def check(found, every, last):
    depth = len(every[0]) - 1
    for name, windows in found.items():
        used = last if name == "angular" else every
        for n in range(1, depth + 1):
            for start in range(depth):
                value = windows[n - 1, start]
                if start + n > depth:
                    assert math.isnan(value)
                    continue
                parts = [expected(name, s[start], s[start + n]) for s in used]
                assert value == pytest.approx(np.concatenate(parts).mean(), abs=2e-6)


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt2", "falcon", "bloom", "llama4_text"])
@pytest.mark.parametrize("batch_tokens", [1, 160])
def test_texts(tiny_dense, family, batch_tokens):
    dense = tiny_dense(family)
    objective = objective_on(dense, batch_tokens=batch_tokens)
    found = state_windows(dense, objective, STATES, longest=dense.depth)
    texts = encode_corpus(
        TEXTS, dense.tokenizer, Tokenisation(), length=64, num_blocks=3, packing="documents"
    )
    every = [states(dense, t.tokens) for t in texts]
    check(found, every, [s[:, -1:] for s in every])


@pytest.mark.parametrize("packed", [True, False])
def test_choices_use_the_scored_rows(tiny_dense, packed):
    dense = tiny_dense("gpt2")
    objective = objective_on(dense, MarginConfig(), ITEMS, pack_choices=packed)
    found = state_windows(dense, objective, STATES, longest=dense.depth)
    every, last = [], []
    for item in encode_choices(ITEMS, dense.tokenizer, Tokenisation()):
        for i, choice in enumerate(item.choices):
            run = states(dense, choice.tokens)
            context = len(choice.tokens) - choice.scored
            shared = packed and i > 0
            every.append(run[:, context if shared else 0 : -1])
            last.append(run[:, context if shared else context - 1 : -1])
    check(found, every, last)


def test_short_passes_agree_with_long_ones(tiny_dense):
    dense = tiny_dense("llama")
    objective = objective_on(dense)
    short = state_windows(dense, objective, STATES)
    long = state_windows(dense, objective, STATES, longest=6)
    for name in STATES:
        assert short[name].shape == ((6, 6) if name == "angular" else (1, 6))
        assert short[name][0].tolist() == long[name][0].tolist()


def copy_of(dense):
    return DenseModel(copy.deepcopy(dense.module), dense.tokenizer, dense.source)


def test_windows_are_as_long_as_they_say(tiny_dense):
    """Blocks 2 and 3 do nothing: only windows within them turn no state."""
    dense = copy_of(tiny_dense("llama"))
    with torch.no_grad():
        for i in (2, 3):
            dense.blocks.layers[i].self_attn.o_proj.weight.zero_()
            dense.blocks.layers[i].mlp.down_proj.weight.zero_()
    found = state_windows(dense, objective_on(dense), STATES, longest=6)
    for name, nothing in {"angular": 0.0, "block_influence": 0.0, "norm_ratio": 1.0}.items():
        same = np.isclose(found[name], nothing, atol=1e-6)
        assert [tuple(map(int, at)) for at in np.argwhere(same)] == [(0, 2), (0, 3), (1, 2)]


def test_the_last_block_is_scored_before_the_final_norm(tiny_dense):
    dense = copy_of(tiny_dense("llama"))
    before = state_windows(dense, objective_on(dense), STATES)
    with torch.no_grad():
        dense.module.model.norm.weight.normal_(generator=torch.Generator().manual_seed(0))
    after = state_windows(dense, objective_on(dense), STATES)
    for name in STATES:
        assert np.array_equal(before[name], after[name], equal_nan=True)


def test_a_broken_block_scores_nan_and_not_zero(tiny_dense):
    dense = copy_of(tiny_dense("llama"))
    with torch.no_grad():
        dense.blocks.layers[3].mlp.down_proj.weight.fill_(torch.nan)
    found = state_windows(dense, objective_on(dense), STATES)
    for name in STATES:
        assert np.isnan(found[name][0]).tolist() == [False] * 3 + [True] * 3


def test_padding_is_left_out(tiny_dense):
    """A text beside a longer one scores as it does alone."""
    dense = tiny_dense("llama")
    alone = objective_on(dense, data=Corpus.of("lambada", "train", LINES[:1], "here"))
    both = objective_on(dense)
    padded = min(both.batches, key=lambda b: len(b.examples) == 1)
    place = padded.examples.index(0)
    assert bool((padded.tokens.owner[place] < 0).any())
    tokens = padded.tokens.first(10**6)
    assert tokens.owner is not None
    both.batches = [padded]
    joint = state_windows(dense, both, STATES)["block_influence"][0]
    single = state_windows(dense, alone, STATES)["block_influence"][0]
    rest = objective_on(dense, data=Corpus.of("lambada", "train", LINES[1:], "here"))
    other = state_windows(dense, rest, STATES)["block_influence"][0]
    sizes = [int((o >= 0).sum()) for o in padded.tokens.owner]
    a, b = sizes[place], sum(sizes) - sizes[place]
    assert joint == pytest.approx((a * single + b * other) / (a + b), abs=1e-6)


def test_batches_without_owners_are_refused(tiny_dense):
    from dataclasses import replace

    dense = tiny_dense("llama")
    objective = objective_on(dense)
    objective.batches = [
        replace(b, tokens=replace(b.tokens, owner=None)) for b in objective.batches
    ]
    with pytest.raises(UsageError, match="which positions belong"):
        state_windows(dense, objective, STATES)
