"""Both ways to have the other model, and both ways to run it, give the same numbers."""

import numpy as np
import pytest
import torch

from shoal.core.errors import UsageError
from shoal.core.mask import Mask
from shoal.diagnosis.passages import Passage, compare_along, passage_batches
from shoal.diagnosis.quantities import QUANTITIES
from shoal.diagnosis.sides import checkpoint_side, dense_side, masked_side, scorers, together
from shoal.diagnosis.spaces import Look, compare
from shoal.engine import selfcheck
from shoal.models.load import load_dense
from shoal.surgery.skipping import pruned_model
from shoal.testing.tiny import tiny_config, tiny_model, tiny_tokenizer

LOOK = Look(1.0, (5, 6, 7, 8))
BLOCKS = [("llama", "-[2-3]"), ("qwen3", "-[1,4]"), ("gemma2", "-[2-3]"), ("gpt2", "-[0]"),
          ("cohere", "-[2-3]"), ("mixtral", "-[5]"), ("lfm2", "-[2-3]"),
          ("deepseek_v3", "-[3-4]")]  # fmt: skip
PARTS = [("llama", "-[2.attn]"), ("llama", "-[2.mlp,3.attn]"), ("gpt2", "-[1.mlp,2.attn,4]"),
         ("gemma2", "-[3.mlp]"), ("qwen3", "-[1.attn,2.attn]"), ("mixtral", "-[4.attn]"),
         ("bloom", "-[2.mlp,3.attn]")]  # fmt: skip


def texts(seed=0):
    generator = torch.Generator().manual_seed(seed)
    sizes = ((6, 5), (3, 2), (8, 4))
    drawn = [torch.randint(128, (a + b,), generator=generator).tolist() for a, b in sizes]
    return [Passage(tuple(t[:a]), tuple(t[a:])) for t, (a, _) in zip(drawn, sizes, strict=True)]


def batch_of(passages):
    (batch,) = passage_batches(passages, 4096)
    return batch.tokens


def columns(mine, theirs, batch):
    return compare(*together((mine, theirs), batch), LOOK)


def assert_close(found, expected, atol=2e-4):
    """Ratios of small numbers apart, within what rounding in float32 leaves."""
    assert found.keys() == expected.keys()
    for name, values in found.items():
        if name not in ("attenuation", "amplification", "flip", "subspace_flip"):
            assert values == pytest.approx(expected[name], abs=atol, rel=1e-3), name


@pytest.mark.parametrize(("family", "mask"), BLOCKS + PARTS)
def test_a_masked_side_is_the_shallow_model_alone(tiny_dense, family, mask):
    dense, batch = tiny_dense(family), batch_of(texts())
    mask = Mask.parse(mask, 6)
    mine = dense_side(dense, batch, [mask])
    masked = masked_side(mine, mask)
    assert masked.runner is mine.runner
    alone = checkpoint_side(load_dense(pruned_model(dense, mask)), batch)
    found = columns(mine, masked, batch)
    assert found.keys() == QUANTITIES.keys()
    assert found["kl"].mean() > 1e-3
    assert_close(found, columns(mine, alone, batch))
    # The model that generates is the one that is run over given tokens.
    with torch.inference_mode():
        logits = masked.model.module(batch.input_ids, use_cache=False).logits.flatten(0, 1)
    rows = masked.rows(batch)
    assert torch.allclose(rows.logits(0, len(rows)), logits[batch.rows], atol=1e-4)


@pytest.mark.parametrize(("family", "mask"), [("llama", "-[2-3]"), ("gpt2", "-[1.mlp,2.attn]")])
def test_the_whole_model_gives_the_same(monkeypatch, tiny_dense, family, mask):
    """Where the head cannot be taken apart, states are seen on their way to the output matrix."""
    dense, passages = tiny_dense(family), texts()
    batch, mask = batch_of(passages), Mask.parse(mask, 6)

    def along():
        mine = dense_side(dense, batch, [mask])
        found = compare_along(mine, masked_side(mine, mask), passages, LOOK, temperatures=(0.5,))
        return mine.runner.name, found

    name, replayed = along()
    assert name == "replay"
    monkeypatch.setattr(selfcheck, "find_head", lambda dense, batch: None)
    name, whole = along()
    assert name == "whole"
    assert whole.quantities.keys() == QUANTITIES.keys()
    there = ~np.isnan(replayed.dense_nll)
    for found, expected in ((whole, replayed), (replayed, whole)):
        assert_close(
            {n: t[there] for n, t in found.quantities.items()},
            {n: t[there] for n, t in expected.quantities.items()},
        )
        assert found.other_nll[there] == pytest.approx(expected.other_nll[there], abs=1e-4)
        assert found.temperatures[0.5]["kl"][there] == pytest.approx(
            expected.temperatures[0.5]["kl"][there], abs=1e-4
        )


def test_a_side_may_run_whole_beside_one_that_is_replayed(monkeypatch, tiny_dense):
    dense, batch = tiny_dense("llama"), batch_of(texts())
    mine = dense_side(dense, batch)
    pruned = load_dense(pruned_model(dense, Mask.of(6, [2])))
    replayed = columns(mine, checkpoint_side(pruned, batch), batch)
    monkeypatch.setattr(selfcheck, "find_head", lambda dense, batch: None)
    whole = checkpoint_side(pruned, batch, "other")
    assert (whole.runner.name, mine.runner.name) == ("whole", "replay")
    assert_close(columns(mine, whole, batch), replayed)


def test_shared_blocks_are_run_once(tiny_dense):
    """The dense model and two masked ones go through one trie; the order of sides is kept."""
    dense, batch = tiny_dense("llama"), batch_of(texts())
    mine = dense_side(dense, batch)
    deep, shallow = (masked_side(mine, Mask.of(6, b)) for b in ([4], [0, 1]))
    before = mine.runner.passes.blocks
    found = scorers((shallow, mine, deep, mine), batch)
    # All six, then from block 5 again, then 2 to 5.
    assert mine.runner.passes.blocks - before == 6 + 1 + 4
    assert found[1] is found[3]
    for side, scorer in zip((shallow, mine, deep), found, strict=False):
        assert torch.allclose(scorer.states, side.scorer(batch).states, atol=1e-5)
    assert not torch.allclose(found[0].states, found[2].states, atol=1e-2)


def test_nothing_removed_is_the_dense_model(tiny_dense):
    dense, batch = tiny_dense("llama"), batch_of(texts())
    mine = dense_side(dense, batch)
    same = masked_side(mine, Mask.dense(6))
    assert same.model.module is dense.module
    assert (columns(mine, same, batch)["kl"] == 0).all()


def test_fingerprints_tell_weights_masks_and_types_apart(tiny_dense):
    dense, batch = tiny_dense("llama"), batch_of(texts())
    mine = dense_side(dense, batch)
    other = load_dense(tiny_model("llama", seed=1))
    half = load_dense(tiny_model("llama").to(torch.bfloat16))
    sides = [
        mine,
        masked_side(mine, Mask.of(6, [1])),
        masked_side(mine, Mask.of(6, [2])),
        checkpoint_side(other, batch),
        checkpoint_side(half, batch),
    ]
    assert len({side.fingerprint for side in sides}) == 5
    again = load_dense(tiny_model("llama"), tokenizer=tiny_tokenizer())
    assert checkpoint_side(again, batch).fingerprint == mine.fingerprint


def test_another_precision_is_close(tiny_dense):
    """Weights of 8 bits of mantissa: states turn by about 1e-5, logits as much."""
    dense, batch = tiny_dense("llama"), batch_of(texts())
    mine = dense_side(dense, batch)
    half = checkpoint_side(load_dense(tiny_model("llama").to(torch.bfloat16)), batch)
    found = columns(mine, half, batch)
    assert 0 < found["kl"].max() < 0.02
    assert 0 < found["hidden_gap"].max() < 0.02


def other_vocabulary(words):
    from transformers import AutoModelForCausalLM

    config = tiny_config("llama")
    config.vocab_size = words
    torch.manual_seed(0)
    return load_dense(AutoModelForCausalLM.from_config(config, dtype=torch.float32))


def test_other_vocabularies_are_refused(tiny_dense):
    dense, batch = tiny_dense("llama"), batch_of(texts())
    mine = dense_side(dense, batch)
    larger = checkpoint_side(other_vocabulary(160), batch)
    with pytest.raises(ValueError, match="vocabularies of 128 and 160 tokens"):
        columns(mine, larger, batch)
    with pytest.raises(UsageError, match=r"holds token \d+, but .* knows 60 tokens only"):
        checkpoint_side(other_vocabulary(60), batch)
