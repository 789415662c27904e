"""Replay = whole = shallow model = exported checkpoint, for every family."""

import pytest
import torch

from shoal.core.mask import Mask
from shoal.engine.runners import ReplayRunner, WholeRunner
from shoal.engine.selfcheck import choose_runner
from shoal.models.load import load_dense
from shoal.models.tail import find_head
from shoal.surgery.export import export
from shoal.surgery.memory import shallow_model
from shoal.testing.scoring import plain_logprobs as oracle
from shoal.testing.scoring import runner_logprobs as scores
from shoal.testing.scoring import tiny_batch as batch
from shoal.testing.tiny import TINY_FAMILIES

MASKS = [Mask.of(6, blocks) for blocks in ((), (0,), (5,), (1, 3), (2, 3, 4), (0, 1, 2, 3, 4))]


def writable(dense, mask):
    """Whether the shallow model exists; some hybrids must keep an attention block."""
    from shoal.core.errors import UnsupportedModelError
    from shoal.surgery.config import check_prunable

    try:
        check_prunable(dense.config, mask)
    except UnsupportedModelError:
        return False
    return True


@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_replay_is_whole_is_shallow(family, tiny_dense):
    dense, tokens = tiny_dense(family), batch()
    choice = choose_runner(dense, tokens)
    assert choice.runner.name == "replay", choice.reason
    shared = scores(choice.runner, tokens, MASKS)
    whole = scores(choose_runner(dense, tokens, force="whole").runner, tokens, MASKS)
    assert set(shared) == set(MASKS)
    for mask in MASKS:
        assert (shared[mask] - whole[mask]).abs().max() < 1e-5
        if writable(dense, mask) and len(mask):
            own = oracle(shallow_model(dense, mask), tokens)
            assert (shared[mask] - own).abs().max() < 1e-5
    assert (shared[MASKS[0]] - shared[MASKS[3]]).abs().max() > 1e-3


@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_replay_is_the_reloaded_checkpoint(family, tiny_dense, tmp_path):
    dense, tokens, mask = tiny_dense(family), batch(seed=1), MASKS[3]
    export(dense, mask, tmp_path / "out")
    loaded = load_dense(str(tmp_path / "out"))
    assert loaded.depth == 4
    expected = scores(choose_runner(dense, tokens).runner, tokens, [mask])[mask]
    assert (oracle(loaded.module, tokens) - expected).abs().max() < 1e-5


def test_the_caller_s_model_is_left_as_it_was(tiny_dense):
    dense, tokens = tiny_dense("llama"), batch()
    layers = list(dense.blocks.layers)
    # transformers leaves hooks of its own behind.
    hooks = [dict(layer._forward_hooks) for layer in layers]
    before = oracle(dense.module, tokens)
    for force in (None, "whole"):
        scores(choose_runner(dense, tokens, force=force).runner, tokens, MASKS)
    assert list(dense.blocks.layers) == layers
    assert [dict(layer._forward_hooks) for layer in layers] == hooks
    assert torch.equal(oracle(dense.module, tokens), before)


def test_a_block_that_keeps_state_between_calls_falls_back_to_the_whole_model(monkeypatch):
    from shoal.testing.tiny import tiny_model, tiny_tokenizer

    dense = load_dense(tiny_model("llama"), tokenizer=tiny_tokenizer())
    block = dense.blocks.layers[3]
    own = block.forward
    calls = []

    def drifting(*args, **kwargs):
        calls.append(1)
        return own(*args, **kwargs) + 0.1 * len(calls)

    monkeypatch.setattr(block, "forward", drifting)
    choice = choose_runner(dense, batch())
    assert choice.runner.name == "whole"
    assert "differ" in choice.reason


def test_a_head_that_cannot_be_taken_apart_falls_back_to_the_whole_model():
    from shoal.testing.tiny import tiny_model, tiny_tokenizer

    dense = load_dense(tiny_model("llama"), tokenizer=tiny_tokenizer())
    own = dense.module.lm_head.forward
    dense.module.lm_head.forward = lambda x: own(x) + own(x) ** 2
    assert find_head(dense, batch()) is None
    choice = choose_runner(dense, batch())
    assert choice.runner.name == "whole"
    assert "head" in choice.reason


@pytest.mark.parametrize("family", ["gemma2", "cohere", "granite", "gpt2", "phi3"])
def test_the_head_reproduces_the_model_s_logits(family, tiny_dense):
    dense, tokens = tiny_dense(family), batch()
    head = find_head(dense, tokens)
    assert head is not None
    assert (head.softcap is not None) == (family == "gemma2")
    stated = {"cohere": "logit_scale", "granite": "logits_scaling"}.get(family)
    scale = 1.0 if stated is None else getattr(dense.config, stated)
    assert head.scale == pytest.approx(1 / scale if family == "granite" else scale, rel=1e-5)
    assert stated is None or scale != 1.0, "the tiny model must put the scale to use"
    found = scores(ReplayRunner(dense, head), tokens, MASKS[:1])[MASKS[0]]
    assert (found - oracle(dense.module, tokens)).abs().max() < 1e-5


def test_muted_and_skipped_blocks_give_the_same(tiny_dense):
    dense, tokens = tiny_dense("qwen3"), batch()
    skipping = scores(WholeRunner(dense, plain=True), tokens, MASKS)
    muting = scores(WholeRunner(dense, plain=False), tokens, MASKS)
    assert all(torch.equal(skipping[m], muting[m]) for m in MASKS)
