"""The in-context regression transformer."""

import pytest
import torch

from shoal.config.lab import FamilyConfig, LabModelConfig
from shoal.core.errors import UsageError
from shoal.lab.functions import draw_prompts
from shoal.lab.model import LabModel

CONFIG = LabModelConfig(layers=3, width=16, heads=2, points=7)


@pytest.fixture(scope="module")
def model():
    return LabModel(CONFIG).eval().requires_grad_(False)


@pytest.fixture(scope="module")
def prompts():
    return draw_prompts(FamilyConfig(), 6, 7, 0)


def test_predictions_come_before_values_are_seen(model, prompts):
    """Point i is predicted from x_0, y_0, ..., x_i: y_i and what follows change nothing."""
    before = model(prompts.x, prompts.y)
    assert before.shape == (6, 7)
    x, y = prompts.x.clone(), prompts.y.clone()
    x[:, 4:], y[:, 3:] = -1.0, 5.0
    after = model(x, y)
    assert torch.equal(before[:, :4], after[:, :4])
    assert (before[:, 4:] != after[:, 4:]).all()


def test_every_earlier_point_counts(model, prompts):
    before = model(prompts.x, prompts.y)
    for place in range(6):
        y = prompts.y.clone()
        y[:, place] += 1
        assert (model(prompts.x, y)[:, -1] != before[:, -1]).all()


def test_short_prompts_are_the_beginning_of_long_ones(model, prompts):
    short = model(prompts.x[:, :3], prompts.y[:, :3])
    assert torch.allclose(short, model(prompts.x, prompts.y)[:, :3], atol=1e-6)


def test_blocks_one_by_one_are_the_forward(model, prompts):
    hidden = model.entry(prompts.x, prompts.y)
    assert hidden.shape == (6, 13, 16)
    for layer in range(model.depth):
        hidden = model.run_block(layer, hidden)
    expected = model(prompts.x, prompts.y)
    assert torch.allclose(model.read(hidden), expected, atol=1e-6)
    # Blocks that did nothing would agree as well.
    assert not torch.allclose(model.read(model.entry(prompts.x, prompts.y)), expected, atol=1e-3)


def test_blocks_are_those_that_run(model):
    assert model.blocks.depth == model.depth == 3
    assert model.get_submodule(model.blocks.path) is model.blocks.layers


def test_weights_follow_from_the_seed():
    state = torch.random.get_rng_state()
    one, same, other = (LabModel(CONFIG, seed).state_dict() for seed in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["read_in.weight"], other["read_in.weight"])
    # A table of token embeddings would be in every checkpoint for nothing.
    assert not [name for name in one if "wte" in name]


def test_too_many_points_are_refused(model):
    long = draw_prompts(FamilyConfig(), 2, 8, 0)
    with pytest.raises(UsageError, match="prompts of 8 points are longer than the 7"):
        model(long.x, long.y)
    with pytest.raises(UsageError, match="prompts of 8 points are longer than the 7"):
        model.entry(long.x, long.y)
