"""Removed sub-layers: replay = skipped = muted = the shallow model, for every family."""

import pytest
import torch

from shoal.core.errors import UnsupportedModelError
from shoal.core.layout import Layout
from shoal.core.mask import Mask, Part
from shoal.engine.runners import WholeRunner
from shoal.engine.selfcheck import choose_runner
from shoal.models.load import load_dense
from shoal.models.masked import muted, skipped
from shoal.models.probing import Probe
from shoal.models.replay import Replay
from shoal.models.sublayers import discover, random_batch
from shoal.surgery.memory import shallow_model
from shoal.testing.scoring import plain_logprobs as oracle
from shoal.testing.scoring import runner_logprobs as scores
from shoal.testing.scoring import tiny_batch as batch
from shoal.testing.tiny import TINY_FAMILIES, tiny_model

PARALLEL = {"gpt_neox", "falcon", "cohere"}
TEXTS = ("-[1.mlp,2.attn]", "-[0.mlp,1,2.attn,4]", "-[1.attn]", "-[0.attn,3.mlp,4.mlp]", "-[5.mlp]")
MASKS = [Mask.parse(text, 6) for text in TEXTS]


@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_replay_is_whole_is_shallow(family, tiny_dense):
    dense, tokens = tiny_dense(family), batch()
    every = [*MASKS, Mask.dense(6), Mask.of(6, [1, 2])]
    shared = scores(choose_runner(dense, tokens).runner, tokens, every)
    plain = Replay(dense).returns_tensors(tokens)
    skipping = scores(WholeRunner(dense, plain), tokens, every)
    muting = scores(WholeRunner(dense, plain=False), tokens, every)
    for mask in every:
        assert torch.equal(skipping[mask], muting[mask])
        assert (shared[mask] - muting[mask]).abs().max() < 1e-5
    for mask in MASKS:
        layout = Layout.of(mask)
        if layout.fused and family in PARALLEL:
            with pytest.raises(UnsupportedModelError, match="side by side"):
                shallow_model(dense, layout)
            layout = Layout.of(mask, fuse=False)
        model = shallow_model(dense, layout)
        assert (oracle(model, tokens) - muting[mask]).abs().max() < 1e-5
    assert (shared[MASKS[0]] - shared[every[-2]]).abs().max() > 1e-3


@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_the_branches_of_a_block_are_the_block(family, tiny_dense):
    dense = tiny_dense(family)
    tokens, replay = random_batch(dense, 2, 12), Replay(dense)
    captured = replay.capture(tokens)
    with torch.inference_mode():
        for i, branches in enumerate(dense.branches):
            assert branches.paired
            assert branches.sequential == (family not in PARALLEL)
            hidden = captured.entry
            whole = replay.run_block(i, hidden.clone(), captured)
            with replay.halves.only(i, Part.ATTN):
                half = replay.run_block(i, hidden.clone(), captured)
            start = half if branches.sequential else hidden
            with replay.halves.only(i, Part.MLP):
                rest = replay.run_block(i, start.clone(), captured)
            if branches.sequential:
                assert torch.equal(rest, whole)
            else:
                assert torch.allclose(half + rest - hidden, whole, atol=1e-5)


def test_the_model_is_left_as_it_was(tiny_dense):
    dense, tokens = tiny_dense("gemma2"), batch()
    modules = dict(dense.module.named_modules())
    # transformers leaves hooks of its own behind.
    hooks = {n: dict(m._forward_hooks) for n, m in modules.items()}
    before = {n: p.clone() for n, p in dense.module.named_parameters()}
    scores(choose_runner(dense, tokens).runner, tokens, MASKS)
    for way in (skipped, muted):
        with way(dense.blocks, MASKS[0], dense.branches):
            pass
    assert dict(dense.module.named_modules()) == modules
    assert all(torch.equal(p, before[n]) for n, p in dense.module.named_parameters())
    assert {n: dict(m._forward_hooks) for n, m in modules.items()} == hooks


def test_silent_attention_does_not_run(tiny_dense, monkeypatch):
    dense, tokens = tiny_dense("llama"), batch()
    calls = []
    attention = dense.blocks.layers[2].self_attn
    own = attention.forward
    monkeypatch.setattr(attention, "forward", lambda *a, **k: calls.append(1) or own(*a, **k))
    mask = Mask.parse("-[2.attn]", 6)
    branches = dense.branches
    calls.clear()
    with skipped(dense.blocks, mask, branches), torch.inference_mode():
        dense.module(tokens.input_ids, use_cache=False)
    assert not calls
    with muted(dense.blocks, mask, dense.branches), torch.inference_mode():
        dense.module(tokens.input_ids, use_cache=False)
    assert calls


def test_what_belongs_to_which_branch(tiny_dense):
    llama, gemma = tiny_dense("llama").branches[0], tiny_dense("gemma2").branches[0]
    assert llama.part_of("input_layernorm.weight") is Part.ATTN
    assert llama.part_of("post_attention_layernorm.weight") is Part.MLP
    assert gemma.part_of("post_attention_layernorm.weight") is Part.ATTN
    assert gemma.part_of("post_feedforward_layernorm.weight") is Part.MLP
    shared = tiny_dense("cohere").branches[0]
    assert shared.part_of("input_layernorm.weight") is None
    assert shared.shared == ("input_layernorm",)
    assert not shared.separable


def test_a_block_that_adds_in_another_way_is_refused(tiny_dense, monkeypatch):
    dense = load_dense(tiny_model("llama"))
    block = dense.blocks.layers[3]
    own = block.forward
    monkeypatch.setattr(block, "forward", lambda *a, **k: own(*a, **k) * 0.9)
    branches = discover(dense)
    assert [i for i, b in enumerate(branches) if not b.paired] == [3]
    assert "block 3 (LlamaDecoderLayer) is not its input plus" in branches[3].why_not
    with pytest.raises(UnsupportedModelError, match=r"block 3 .* is not its input plus"):
        shallow_model(dense, Mask.parse("-[3.mlp,4.attn]", 6))
    with pytest.raises(UnsupportedModelError, match="not its input plus"):
        discover(load_dense(tiny_model("bert")))


def test_parts_need_the_branches(tiny_dense):
    dense = tiny_dense("llama")
    for way in (skipped, muted):
        with (
            pytest.raises(UnsupportedModelError, match="no branch"),
            way(dense.blocks, MASKS[0]),
        ):
            pass


def test_the_probe_runs_blocks_as_the_model_does(tiny_dense):
    dense = tiny_dense("qwen3")
    replay, tokens = Replay(dense), random_batch(tiny_dense("qwen3"), 2, 12)
    captured = replay.capture(tokens)
    probe = Probe(
        dense.blocks.layers, captured.entry, lambda i, h: replay.run_block(i, h, captured)
    )
    with torch.inference_mode():
        states = dense.module(tokens.input_ids, output_hidden_states=True).hidden_states
        for i in range(6):
            assert torch.equal(probe.entry(i), states[i])


def test_a_module_that_both_branches_run_through_is_no_update():
    """Phi drops out the outputs of attention and MLP by one and the same module."""
    dense = load_dense(tiny_model("phi"))
    branches = dense.branches[0]
    assert [u.path for u in branches.attn.updates] == ["self_attn"]
    assert [u.path for u in branches.mlp.updates] == ["mlp"]
    assert not branches.sequential


def test_a_stand_in_has_what_the_code_around_reads():
    """X-MOD's encoder takes its language adapters' module from the block before it runs it."""
    dense = load_dense(tiny_model("xmod"))
    tokens = torch.arange(4, 24)[None]
    mask = Mask.of(6, [1, 3])
    with torch.inference_mode():
        with muted(dense.blocks, mask):
            expected = dense.module(tokens).logits
        with skipped(dense.blocks, mask):
            assert torch.equal(dense.module(tokens).logits, expected)
