"""The pruned model in memory is the dense model with its removed blocks muted."""

import copy

import pytest
import torch

from shoal.core.errors import UnsupportedModelError
from shoal.core.mask import Mask
from shoal.models.masked import muted
from shoal.surgery.memory import shallow_model
from shoal.surgery.probe import greedy, logits_of, probe_tokens
from shoal.testing.tiny import TINY_FAMILIES

MASKS = [Mask.of(6, {1, 3}), Mask.of(6, {0, 5}), Mask.of(6, {2, 3})]


@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_logits_and_cached_generation_equal_the_muted_dense_model(family, tiny_dense):
    dense = tiny_dense(family)
    tokens = probe_tokens(dense, 2, 8)
    plain = logits_of(dense.module, tokens)
    for mask in MASKS:
        shallow = shallow_model(dense, mask)
        assert type(shallow) is type(dense.module)
        assert not shallow.training
        with muted(dense.blocks, mask):
            expected = logits_of(dense.module, tokens)
            continued = greedy(dense.module, tokens, 6, use_cache=True)
        found = logits_of(shallow, tokens)
        assert (found - expected).abs().max() < 1e-5
        assert (found - plain).abs().max() > 1e-2
        assert torch.equal(greedy(shallow, tokens, 6, use_cache=True), continued)
    assert torch.equal(logits_of(dense.module, tokens), plain)


def test_tensors_are_shared_and_ties_stay(tiny_dense):
    dense = tiny_dense("gemma2")
    shallow = shallow_model(dense, Mask.of(6, [1, 3]))
    own = {p.data_ptr() for p in dense.module.parameters()}
    assert all(p.data_ptr() in own for p in shallow.parameters())
    assert shallow.lm_head.weight is shallow.model.embed_tokens.weight
    assert not any(t.is_meta for t in (*shallow.parameters(), *shallow.buffers()))


def test_dense_model_is_not_changed(tiny_dense):
    dense = tiny_dense("qwen2")
    config, state = copy.deepcopy(dense.config.to_dict()), list(dense.module.state_dict())
    settings = dense.module.generation_config
    shallow = shallow_model(dense, Mask.of(6, [2]))
    shallow.config.num_hidden_layers = 99
    shallow.generation_config.max_new_tokens = 7
    assert dense.config.to_dict() == config
    assert list(dense.module.state_dict()) == state
    assert dense.module.generation_config is settings
    assert settings.max_new_tokens != 7


def test_block_indices_are_consistent(tiny_dense):
    shallow = shallow_model(tiny_dense("llama"), Mask.of(6, [0, 4]))
    assert [b.self_attn.layer_idx for b in shallow.model.layers] == [0, 1, 2, 3]


def test_config_that_asks_for_other_tensors_is_caught(tiny_dense, monkeypatch):
    dense = tiny_dense("deepseek_v3")
    monkeypatch.setattr("shoal.surgery.rules.LEADING", ())
    with pytest.raises(UnsupportedModelError, match=r"asks for model\.layers"):
        shallow_model(dense, Mask.of(6, [0]))
