"""States by hooks against the library's own hidden states, and against blocks run one by one."""

import pytest
import torch
from torch import nn

from shoal.core.errors import UnsupportedModelError, UsageError
from shoal.core.mask import Mask
from shoal.geometry.interventions import removed, scaled
from shoal.geometry.stack import Batch, Stack, llm_stack, states
from shoal.models.discover import Blocks
from shoal.models.load import load_dense
from shoal.models.replay import Replay
from shoal.testing.scoring import tiny_batch
from shoal.testing.tiny import TINY_FAMILIES, tiny_model

FINAL_NORM = {"llama": "model.norm", "gpt2": "transformer.ln_f", "gemma2": "model.norm"}


def everywhere(tokens):
    return Batch.of(tokens, torch.ones(tokens.input_ids.shape, dtype=torch.bool))


def chain(blocks, run=None):
    """A stack of blocks that run one after another on a tensor."""
    layers = nn.ModuleList(blocks)

    def one_by_one(hidden):
        for layer in layers:
            hidden = layer(hidden)
        return hidden

    return Stack(Blocks("layers", layers), run or one_by_one)


def hook_counts(module):
    return [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in module.modules()]


@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_states_equal_blocks_run_one_by_one(tiny_dense, family):
    dense, tokens = tiny_dense(family), tiny_batch()
    found = states(llm_stack(dense, branches=False), everywhere(tokens))
    replay = Replay(dense)
    captured = replay.capture(tokens)
    hidden = captured.entry
    assert torch.equal(found[0], hidden)
    with torch.inference_mode():
        for i in range(dense.depth):
            hidden = replay.run_block(i, hidden.clone(), captured)
            assert torch.equal(found[i + 1], hidden)
    assert len(found) == dense.depth + 1


@pytest.mark.parametrize("family", FINAL_NORM)
def test_states_equal_the_hidden_states_of_the_library(tiny_dense, family):
    dense, tokens = tiny_dense(family), tiny_batch()
    found = states(llm_stack(dense, branches=False), everywhere(tokens))
    with torch.no_grad():
        theirs = dense.module(tokens.input_ids, output_hidden_states=True).hidden_states
        for mine, other in zip(found[:-1], theirs[:-1], strict=True):
            assert torch.equal(mine, other)
        # What the library calls the last hidden state is behind the final norm.
        assert not torch.allclose(found[-1], theirs[-1], atol=0.1)
        norm = dense.module.get_submodule(FINAL_NORM[family])
        assert torch.allclose(norm(found[-1]), theirs[-1], atol=1e-6)


def test_states_are_those_after_interventions(tiny_dense):
    dense, batch = tiny_dense("llama"), everywhere(tiny_batch())
    stack = llm_stack(dense)
    plain = states(stack, batch)
    with removed(stack, Mask.of(6, [2])):
        found = states(stack, batch)
    assert torch.equal(found[3], found[2])
    assert torch.equal(found[2], plain[2])
    assert not torch.equal(found[6], plain[6])
    with scaled(stack, {2: 0.5}, "block"):
        found = states(stack, batch)
    assert torch.allclose(found[3], (plain[2] + plain[3]) / 2, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_states_are_float32_copies(dtype):
    class AddsInPlace(nn.Module):
        def forward(self, hidden):
            return hidden.add_(1)

    hidden = torch.zeros(2, 3, 4, dtype=dtype)
    batch = Batch.of(hidden, torch.ones(2, 3, dtype=torch.bool))
    found = states(chain([AddsInPlace(), AddsInPlace()]), batch)
    assert [h.unique().tolist() for h in found] == [[0], [1], [2]]
    assert {h.dtype for h in found} == {torch.float32}


def test_no_logits_are_computed(tiny_dense):
    dense = tiny_dense("llama")
    stack = llm_stack(dense, branches=False)
    calls = []
    hook = dense.module.lm_head.register_forward_hook(lambda *a: calls.append(1))
    try:
        states(stack, everywhere(tiny_batch()))
    finally:
        hook.remove()
    assert not calls


def test_a_model_whose_blocks_lie_outside_of_its_body_runs_whole(monkeypatch):
    dense = load_dense(tiny_model("llama"))
    expected = states(llm_stack(dense, branches=False), everywhere(tiny_batch()))
    monkeypatch.setattr(type(dense.module), "base_model", property(lambda self: self.lm_head))
    stack = llm_stack(dense, branches=False)
    found = states(stack, everywhere(tiny_batch()))
    assert all(map(torch.equal, found, expected))
    assert hasattr(stack.run(tiny_batch()), "logits")


def test_branches_are_known_where_they_can_be_told(tiny_dense, monkeypatch):
    dense = tiny_dense("gpt2")
    assert llm_stack(dense).branches == dense.branches
    assert llm_stack(dense, branches=False).branches == ()
    other = load_dense(tiny_model("llama"))
    for block in other.blocks.layers:
        own = block.forward
        monkeypatch.setattr(block, "forward", lambda *a, own=own, **k: own(*a, **k) * 0.9)
    assert llm_stack(other).branches == ()


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("xlnet", r"shape \[3, 2, 32\] for \[2, 3\] sequences"),
        ("gemma3n_text", r"shape \[2, 2, 3, 32\]"),
        ("deepseek_v4", r"shape \[2, 3, 2, 32\]"),
        ("hrm_text", "not run once each, in order"),
    ],
)
def test_odd_states_are_refused(kind, why):
    dense = load_dense(tiny_model(kind, depth=4))
    counts = hook_counts(dense.module)
    with pytest.raises(UnsupportedModelError, match=why):
        llm_stack(dense, branches=False)
    assert hook_counts(dense.module) == counts


def test_states_without_positions_of_their_own_are_refused():
    flat = Batch.of(torch.zeros(6, 4), torch.ones(2, 3, dtype=torch.bool))
    with pytest.raises(UnsupportedModelError, match=r"\[6, 4\] for \[2, 3\]"):
        states(chain([nn.Identity()]), flat)


@pytest.mark.parametrize("order", [[0], [1, 0], [0, 1, 1], [0, 1, 0, 1]])
def test_blocks_that_do_not_run_once_each_in_order_are_refused(order):
    blocks = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def run(hidden):
        for i in order:
            hidden = blocks[i](hidden)

    batch = Batch.of(torch.zeros(2, 3, 4), torch.ones(2, 3, dtype=torch.bool))
    with pytest.raises(UnsupportedModelError, match="not run once each, in order"):
        states(Stack(Blocks("layers", blocks), run), batch)


def test_no_hook_stays_where_the_forward_fails():
    stack = chain([nn.Linear(4, 4), nn.Linear(5, 5)])
    batch = Batch.of(torch.zeros(2, 3, 4), torch.ones(2, 3, dtype=torch.bool))
    with pytest.raises(RuntimeError):
        states(stack, batch)
    assert sum(hook_counts(stack.blocks.layers)) == 0


def test_last_positions():
    positions = torch.tensor([[True, True, False], [False, True, True], [True, False, False]])
    assert Batch.of(None, positions).last.tolist() == [1, 2, 0]


def test_batches_that_contradict_themselves_are_refused():
    positions = torch.ones(2, 3, dtype=torch.bool)
    with pytest.raises(UsageError, match="last position of each sequence"):
        Batch(None, positions, torch.tensor([2, 1]))
    with pytest.raises(UsageError, match=r"bool \[B, T\]"):
        Batch.of(None, positions.int())
    positions[1] = False
    with pytest.raises(UsageError, match="no position that counts"):
        Batch.of(None, positions)


@pytest.mark.parametrize("until", [0, 1, 3, 4])
def test_nothing_is_run_behind_the_deepest_state_wanted(lab, until):
    stack, batch = lab
    ran = []
    hooks = [
        layer.register_forward_pre_hook(lambda m, a, i=i: ran.append(i))
        for i, layer in enumerate(stack.blocks.layers)
    ]
    some = states(stack, batch, until)
    for hook in hooks:
        hook.remove()
    assert ran == list(range(max(until, 1)))
    for one, other in zip(some, states(stack, batch)[: until + 1], strict=True):
        assert torch.equal(one, other)
    assert not any(layer._forward_hooks for layer in stack.blocks.layers)
