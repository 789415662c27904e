"""The lab model as geometry sees it, against the model's own fast path."""

import pytest
import torch

from shoal.config.lab import FamilyConfig, LabModelConfig
from shoal.core.errors import UsageError
from shoal.core.mask import Mask, Part
from shoal.geometry.stack import states
from shoal.lab.functions import draw_prompts
from shoal.lab.model import LabModel
from shoal.lab.stack import CLASSES, lab_stack, lab_texts
from shoal.models.branches import find_branches
from shoal.models.masked import muted
from shoal.models.probing import Probe

PROMPTS = draw_prompts(FamilyConfig(), 10, 7, 3)


@pytest.fixture
def model():
    found = LabModel(LabModelConfig(layers=4, width=16, heads=2, points=7)).requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    for parameter in found.parameters():
        parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return found.eval()


def test_states_equal_the_loop_over_blocks(model):
    (batch,) = lab_texts(PROMPTS, "id").batches
    found = states(lab_stack(model), batch)
    hidden = model.entry(PROMPTS.x, PROMPTS.y)
    assert torch.equal(found[0], hidden)
    for i in range(model.depth):
        hidden = model.run_block(i, hidden)
        assert torch.allclose(found[i + 1], hidden, atol=1e-6)
    assert torch.allclose(lab_stack(model).run(PROMPTS), model.read(hidden), atol=1e-6)
    assert torch.equal(lab_stack(model).run(PROMPTS), model(PROMPTS.x, PROMPTS.y))


def test_texts_are_the_prompts_in_their_order():
    texts = lab_texts(PROMPTS, "wide", batch=4)
    assert texts.name == "wide"
    assert [len(b.inputs) for b in texts.batches] == [4, 4, 2]
    assert torch.equal(torch.cat([b.inputs.x for b in texts.batches]), PROMPTS.x)
    assert torch.equal(torch.cat([b.inputs.y for b in texts.batches]), PROMPTS.y)
    for batch in texts.batches:
        assert batch.positions.shape == (len(batch.inputs), 13)
        assert batch.positions.all()
        assert batch.last.tolist() == [12] * len(batch.inputs)
    assert lab_texts(PROMPTS.rows(0, 0), "none").batches == ()
    with pytest.raises(UsageError, match="batch of 0"):
        lab_texts(PROMPTS, "none", batch=0)


def test_the_last_position_is_an_x_and_classes_share_all_positions(model):
    (batch,) = lab_texts(PROMPTS, "id").batches
    places = torch.arange(13)
    x, y = (set(places[CLASSES[name]].tolist()) for name in "xy")
    assert x | y == set(range(13))
    assert not x & y
    assert set(batch.last.tolist()) <= x
    # Changing the values of y changes what enters at y positions and nowhere else.
    moved = model.entry(PROMPTS.x, PROMPTS.y + 1) != model.entry(PROMPTS.x, PROMPTS.y)
    assert set(moved.any(-1).any(0).nonzero().flatten().tolist()) == y


def test_branches_are_those_that_are_found_by_what_modules_do(model):
    probe = Probe(model.blocks.layers, model.entry(PROMPTS.x, PROMPTS.y), model.run_block)
    found = find_branches(model.blocks.layers, probe)
    assert lab_stack(model).branches == found


def test_parts_of_blocks_can_be_removed(model):
    stack = lab_stack(model)
    hidden = model.entry(PROMPTS.x, PROMPTS.y)
    block = model.blocks.layers[0]
    for part in (Part.ATTN, Part.MLP):
        with muted(stack.blocks, Mask.parse(f"-[0.{part.value}]", 4), stack.branches):
            found = states(stack, lab_texts(PROMPTS, "id").batches[0])[1]
        own = block.mlp(block.ln_2(hidden)) if part is Part.ATTN else block.attn(block.ln_1(hidden))
        update = own if part is Part.ATTN else own[0]
        assert torch.allclose(found, hidden + update, atol=1e-6)


def test_no_gradients_are_kept():
    model = LabModel(LabModelConfig(layers=2, width=8, heads=2, points=7))
    assert not lab_stack(model).run(PROMPTS).requires_grad
