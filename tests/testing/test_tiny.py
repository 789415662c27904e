"""The zoo of tiny models: every block matters, and the same arguments give the same weights."""

import pytest
import torch
from transformers import AutoTokenizer

from shoal.core.errors import UsageError
from shoal.core.mask import Mask
from shoal.models.load import load_dense
from shoal.models.masked import muted
from shoal.testing.tiny import TINY_FAMILIES, save_tiny, tiny_model, tiny_tokenizer

TOKENS = torch.randint(4, 128, (2, 24), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("family", TINY_FAMILIES)
@torch.inference_mode()
def test_skipping_any_block_changes_the_logits(family):
    dense = load_dense(tiny_model(family))
    assert dense.depth == 6
    assert dense.config.model_type == family
    assert dense.dtype == torch.float32
    assert not dense.module.training
    plain = dense.module(TOKENS).logits
    assert plain.shape == (2, 24, 128)
    for block in range(6):
        with muted(dense.blocks, Mask.of(6, [block])):
            assert (dense.module(TOKENS).logits - plain).abs().max() > 1e-2
    assert torch.equal(dense.module(TOKENS).logits, plain)


@pytest.mark.parametrize(
    "family", ["qwen2", "gemma2", "gemma3_text", "gpt_oss", "lfm2", "granitemoehybrid"]
)
def test_kinds_of_blocks_are_mixed(family):
    assert len(set(tiny_model(family).config.layer_types)) == 2


def test_same_seed_same_weights_and_other_seed_other_weights():
    one, two, three = (tiny_model("llama", seed=s).lm_head.weight for s in (0, 0, 1))
    assert torch.equal(one, two)
    assert not torch.equal(one, three)


def test_building_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    tiny_model("llama", depth=2)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("depth", [1, 3, 9])
def test_depth_is_free(depth):
    for family in ("llama", "gpt_neo", "qwen3_moe", "gemma2"):
        assert load_dense(tiny_model(family, depth=depth)).depth == depth


def test_unknown_family_is_refused_with_a_suggestion():
    with pytest.raises(UsageError, match='Did you mean "llama"'):
        tiny_model("lama")


def test_saved_folder_loads_with_its_tokenizer(tmp_path):
    folder = save_tiny("llama", tmp_path / "m", depth=2, max_shard_size="40KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    dense = load_dense(str(folder))
    assert dense.depth == 2
    assert dense.require_tokenizer().decode(dense.require_tokenizer()("hi").input_ids) == "hi"
    bare = save_tiny("llama", tmp_path / "bare", depth=2, tokenizer=False)
    assert load_dense(str(bare)).tokenizer is None


def test_tokenizer_has_exactly_the_models_vocabulary(tmp_path):
    tokenizer = tiny_tokenizer()
    assert len(tokenizer) == tokenizer.vocab_size == 128
    ids = (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id)
    assert ids == (0, 1, 2)
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    text = "The heron, standing on one leg\nand 12 fish; {x} ~ 'y'?"
    assert again(text).input_ids == tokenizer(text).input_ids
    assert again.decode(again(text).input_ids) == text


def test_tokenizer_reads_any_text():
    tokenizer = tiny_tokenizer()
    ids = tokenizer("é漢\t\U0001f41f ok").input_ids
    assert max(ids) < 128
    assert ids.count(tokenizer.unk_token_id) == 4
    assert tokenizer("").input_ids == []
    batch = tokenizer(["a", "a longer line"], padding=True)
    assert batch.attention_mask[0][-1] == 0
