"""Magnitude and Taylor against plain autograd over single examples."""

import copy

import numpy as np
import pytest
import torch

from shoal.config.objectives import MarginConfig, NllConfig
from shoal.data import Choice, ChoiceItem, ChoiceSet, Corpus, Tokenisation
from shoal.models.dense import DenseModel
from shoal.objectives.build import build_objective
from shoal.objectives.scores.weights import magnitude, taylor

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


def changed(dense, change):
    return DenseModel(change(copy.deepcopy(dense.module)), dense.tokenizer, dense.source)


@pytest.mark.parametrize("family", ["llama", "gpt2", "mixtral", "gemma2"])
def test_taylor_of_a_token_mean(tiny_dense, family):
    """Texts weigh by their tokens, so the mean loss is that over all scored tokens."""
    # Grouped experts know no float64.
    dense = changed(tiny_dense(family), lambda m: m if family == "mixtral" else m.double())
    objective = objective_on(dense)
    total = count = 0
    for batch in objective.batches:
        tokens = batch.tokens
        logits = dense.module(**tokens.forward_arguments(dense.dtype)).logits
        table = logits.reshape(-1, logits.shape[-1])[tokens.rows].log_softmax(-1)
        total = total - table[tokens.pick, tokens.targets].sum()
        count += len(tokens.pick)
    plain = copy.deepcopy(dense.module)
    (total / count).backward()
    expected = [
        sum(
            float((p.detach() * p.grad).abs().sum())
            for p in block.parameters()
            if p.grad is not None
        )
        for block in dense.blocks.layers
    ]
    again = DenseModel(plain, dense.tokenizer, dense.source)
    assert taylor(again, objective) == pytest.approx(expected, rel=1e-4)
    assert all(p.grad is None for p in plain.parameters())


@pytest.mark.parametrize(("config", "data"), [(NllConfig(), TEXTS), (MarginConfig(), ITEMS)])
def test_micro_batches_change_nothing(tiny_dense, config, data):
    dense = tiny_dense("phi3")
    found = [
        taylor(dense, objective_on(dense, config, data, batch_tokens=size)) for size in (1, 64, 999)
    ]
    assert found[1] == pytest.approx(found[0], rel=1e-4)
    assert found[2] == pytest.approx(found[0], rel=1e-4)


def test_the_model_is_left_as_it_was(tiny_dense):
    dense = changed(tiny_dense("llama"), lambda m: m.bfloat16())
    frozen = dense.blocks.layers[1].mlp.up_proj.weight.requires_grad_(False)
    held = dense.blocks.layers[0].mlp.up_proj.weight
    held.grad = torch.ones_like(held)
    objective = objective_on(dense)
    with torch.inference_mode():
        low = taylor(dense, objective)
    assert not frozen.requires_grad
    assert held.requires_grad
    assert bool((held.grad == 1).all())
    assert dense.module.lm_head.weight.grad is None
    exact = taylor(tiny_dense("llama"), objective_on(tiny_dense("llama")))
    assert low == pytest.approx(exact, rel=0.05)


@pytest.mark.parametrize("family", ["llama", "bloom", "qwen3_moe"])
def test_magnitude_counts_every_weight_of_a_block(tiny_dense, family):
    dense = tiny_dense(family)
    path = dense.blocks.path
    expected = np.zeros(dense.depth)
    for name, weight in dense.module.named_parameters():
        if name.startswith(path + "."):
            block = int(name.removeprefix(path + ".").split(".")[0])
            expected[block] += np.abs(weight.detach().double().numpy()).sum()
    assert magnitude(dense) == pytest.approx(expected, rel=1e-6)
    low = changed(dense, lambda m: m.bfloat16())
    assert magnitude(low) == pytest.approx(expected, rel=1e-2)
