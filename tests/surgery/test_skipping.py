"""`shoal.load` of a plan with sub-layers: skipped, the cache consistent, generation right."""

import pytest
import torch

import shoal
from shoal.core.errors import UsageError
from shoal.core.layout import Layout
from shoal.core.mask import Mask
from shoal.models.discover import find_blocks
from shoal.models.masked import muted
from shoal.models.silent import PassOn, Zeros
from shoal.surgery.probe import greedy, logits_of, probe_tokens
from shoal.surgery.skipping import pruned_model
from shoal.testing.tiny import TINY_FAMILIES

MASKS = [
    Mask.parse(text, 6)
    for text in ("-[0.attn]", "-[2.mlp]", "-[0.attn,3.attn,3.mlp,4.mlp]", "-[1,2.attn,5.attn]")
]


@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_it_is_the_muted_model_with_and_without_cache(family, tiny_dense, caplog):
    dense = tiny_dense(family)
    tokens = probe_tokens(dense, 2, 8)
    for mask in MASKS:
        model = pruned_model(dense, mask)
        with muted(dense.blocks, mask, dense.branches):
            expected = logits_of(dense.module, tokens)
            answers = {c: greedy(dense.module, tokens, 8, use_cache=c) for c in (True, False)}
        assert torch.allclose(logits_of(model, tokens), expected, atol=1e-5)
        for cached in (True, False):
            found = greedy(model, tokens, 8, use_cache=cached)
            assert any(torch.equal(found, answer) for answer in answers.values())
        assert any(isinstance(m, Zeros) for m in model.modules()), "it must be skipped"
        assert not caplog.records


def test_skipped_attention_computes_nothing(tiny_dense):
    model = pruned_model(tiny_dense("gemma2"), Mask.parse("-[2.attn]", 6))
    layer = find_blocks(model).layers[2]
    assert isinstance(layer.self_attn, PassOn)
    assert isinstance(layer.post_attention_layernorm, Zeros)
    assert not list(layer.self_attn.parameters())


def test_the_dense_model_is_left_alone(tiny_dense):
    dense = tiny_dense("llama")
    before = {n: p.clone() for n, p in dense.module.named_parameters()}
    modules = dict(dense.module.named_modules())
    pruned_model(dense, MASKS[2])
    assert dict(dense.module.named_modules()) == modules
    assert all(torch.equal(p, before[n]) for n, p in dense.module.named_parameters())


def test_half_steps_make_an_ordinary_model_that_can_be_saved(tiny_dense, tmp_path):
    dense = tiny_dense("llama")
    mask = Mask.parse("-[1.mlp,2.attn]", 6)
    model = shoal.load(dense, plan=mask)
    assert model.config.num_hidden_layers == 5 == len(Layout.of(mask))
    model.save_pretrained(tmp_path / "saved")
    again = type(model).from_pretrained(tmp_path / "saved")
    tokens = probe_tokens(dense, 2)
    assert torch.equal(logits_of(again, tokens), logits_of(model, tokens))


def test_a_skipping_model_is_not_saved_silently_wrong(tiny_dense, tmp_path):
    model = shoal.load(tiny_dense("llama"), plan=Mask.parse("-[1.mlp]", 6))
    with pytest.raises(UsageError, match=r"shoal\.export"):
        model.save_pretrained(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_where_skipping_fails_the_zeroed_model_is_used(tiny_dense, monkeypatch, caplog):
    dense, mask = tiny_dense("llama"), Mask.parse("-[1.mlp]", 6)
    monkeypatch.setattr(Zeros, "forward", lambda self, *args, **kwargs: args[0])
    model = pruned_model(dense, mask)
    assert "zeroed output" in caplog.text
    tokens = probe_tokens(dense, 2)
    with muted(dense.blocks, mask, dense.branches):
        assert torch.allclose(logits_of(model, tokens), logits_of(dense.module, tokens), atol=1e-5)
