"""Editing configs: each rule on the family that needs it, and every refusal."""

import copy
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoConfig, PreTrainedConfig

from shoal.core.errors import UnsupportedModelError, UsageError
from shoal.core.mask import Mask, Part, Site
from shoal.models.discover import depth_of, text_config
from shoal.surgery.config import attention_mix, check_prunable, prune_config
from shoal.surgery.fields import per_layer_fields
from shoal.surgery.periodic import INTERVAL, PERIODS, fit, marked
from shoal.surgery.refusals import why_not
from shoal.testing.tiny import TINY_FAMILIES, tiny_config

F, S, L = "full_attention", "sliding_attention", "linear_attention"


def config_of(kind, depth=6, **fields):
    return AutoConfig.for_model(kind, num_hidden_layers=depth, **fields)


@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_copy_has_the_new_depth_and_the_original_is_untouched(family):
    config = tiny_config(family)
    before = copy.deepcopy(config).to_dict()
    pruned = prune_config(config, Mask.of(6, [1, 3]))
    assert depth_of(pruned) == 4
    assert type(pruned) is type(config)
    assert config.to_dict() == before
    assert prune_config(config, Mask.dense(6)).num_hidden_layers == 6


def test_lists_are_sliced():
    config = config_of("qwen3", layer_types=[F, F, S, S, F, S], use_sliding_window=True)
    pruned = prune_config(config, Mask.of(6, [1, 4]))
    assert pruned.layer_types == [F, S, S, S]
    rope = config_of("smollm3", no_rope_layers=[1, 1, 0, 1, 0, 0])
    assert prune_config(rope, Mask.of(6, [0, 5])).no_rope_layers == [1, 0, 1, 0]


def test_lists_that_are_only_as_long_as_the_model_is_deep_stay():
    config = config_of("qwen3", eos_token_id=[1, 2, 3, 4, 5, 6])
    assert prune_config(config, Mask.of(6, [1, 3])).eos_token_id == [1, 2, 3, 4, 5, 6]


def test_index_list_equal_to_the_range_of_blocks_is_renumbered():
    config = config_of("llama4_text", moe_layers=list(range(6)))
    assert prune_config(config, Mask.of(6, [1, 3])).moe_layers == [0, 1, 2, 3]
    some = config_of("llama4_text", moe_layers=[1, 3, 5])
    assert prune_config(some, Mask.of(6, [0, 3])).moe_layers == [0, 3]
    assert prune_config(some, Mask.of(6, [1, 3, 5])).moe_layers == []


@pytest.mark.parametrize(("blocks", "left"), [([1, 3], 1), ([0, 1], 0), ([4, 5], 2), ([0, 5], 1)])
def test_leading_counts_are_recounted(blocks, left):
    config = config_of("deepseek_v3", first_k_dense_replace=2)
    pruned = prune_config(config, Mask.of(6, blocks))
    assert pruned.first_k_dense_replace == left
    assert pruned.num_mtp_layers == 0


def test_window_count_is_recounted_with_its_list():
    config = config_of("qwen2", use_sliding_window=True, sliding_window=8, max_window_layers=3)
    pruned = prune_config(config, Mask.of(6, [0, 5]))
    assert pruned.max_window_layers == 2
    assert pruned.layer_types == [F, F, S, S]


def test_sparse_step_is_made_explicit():
    config = config_of("qwen3_moe", decoder_sparse_step=2, mlp_only_layers=[3])
    pruned = prune_config(config, Mask.of(6, [0, 4]))
    assert pruned.decoder_sparse_step == 1
    assert pruned.mlp_only_layers == [1, 2]


def test_run_lengths_of_gpt_neo_are_made_explicit():
    config = config_of("gpt_neo", attention_types=[[["global", "local"], 3]])
    pruned = prune_config(config, Mask.of(6, [1, 3]))
    assert pruned.attention_layers == ["global", "global", "global", "local"]
    assert pruned.attention_types == [[[kind], 1] for kind in pruned.attention_layers]


def test_pattern_of_recurrent_gemma_is_made_explicit():
    config = config_of("recurrent_gemma", block_types=["recurrent", "recurrent", "attention"])
    pruned = prune_config(config, Mask.of(6, [0, 2]))
    assert pruned.block_types == ["recurrent", "recurrent", "recurrent", "attention"]


def test_residual_scale_keeps_its_effect():
    config = config_of("minicpm3", scale_depth=1.4)
    pruned = prune_config(config, Mask.of(6, [1, 3]))
    assert pruned.scale_depth / 4**0.5 == pytest.approx(1.4 / 6**0.5)


def test_hybrid_index_list_and_alias_are_handled_once():
    bamba = config_of("bamba", attn_layer_indices=[2, 5])
    assert prune_config(bamba, Mask.of(6, [0, 2])).attn_layer_indices == [3]
    granite = config_of("granitemoehybrid", layer_types=[L, F, L, F, L, F])
    assert prune_config(granite, Mask.of(6, [1, 2])).layer_types == [L, F, L, F]


def test_overrides_by_block_are_renumbered():
    config = config_of("gemma4_text", hidden_size_per_layer_input=0, layer_types=[S, F, S, S, S, F])
    pruned = prune_config(config, Mask.of(6, [0, 3]))
    wide = [block.head_dim == 512 for block in pruned.per_layer_config]
    assert wide == [kind == F for kind in pruned.layer_types] == [True, False, False, True]


def test_nested_text_config_is_the_one_that_is_edited():
    config = AutoConfig.for_model("gemma3")
    text = text_config(config)
    vision = config.vision_config.to_dict()
    pruned = prune_config(config, Mask.of(text.num_hidden_layers, [0, 7]))
    assert pruned.text_config.num_hidden_layers == text.num_hidden_layers - 2
    kinds = [t for i, t in enumerate(text.layer_types) if i not in (0, 7)]
    assert pruned.text_config.layer_types == kinds
    assert pruned.vision_config.to_dict() == vision
    assert config.text_config.num_hidden_layers == text.num_hidden_layers


@given(st.sets(st.integers(0, 11), max_size=11))
def test_what_a_config_says_of_each_kept_block_survives_any_mask(blocks):
    kinds = [S, F, S, S, F, F, S, F, S, S, S, F]
    config = config_of("exaone_moe", 12, layer_types=kinds, first_k_dense_replace=4)
    mask = Mask.of(12, blocks)
    pruned = prune_config(config, mask)
    assert pruned.layer_types == [kinds[i] for i in mask.kept]
    assert pruned.mlp_layer_types == [config.mlp_layer_types[i] for i in mask.kept]
    assert pruned.first_k_dense_replace == sum(i < 4 for i in mask.kept)


def test_handling_is_listed_by_field():
    fields = per_layer_fields(tiny_config("qwen3_moe"))
    assert fields == {"mlp_only_layers": "renumbered", "decoder_sparse_step": "made explicit"}
    assert per_layer_fields(tiny_config("llama")) == {}
    assert per_layer_fields(tiny_config("deepseek_v3"))["first_k_dense_replace"] == "recounted"
    assert per_layer_fields(tiny_config("gemma2")) == {"layer_types": "sliced"}
    assert why_not(tiny_config("gemma2")) == []


def test_mix_shows_a_kind_that_disappears():
    config = tiny_config("gemma2")
    assert attention_mix(config, Mask.of(6, [1, 3])) == {S: 3, F: 1}
    assert attention_mix(config, Mask.of(6, [1, 3, 5])) == {S: 3, F: 0}
    assert attention_mix(tiny_config("llama"), Mask.of(6, [1])) == {}


def test_wrong_masks_are_refused():
    config = tiny_config("llama")
    with pytest.raises(UsageError, match="is for 5 blocks, but the model has 6"):
        check_prunable(config, Mask.of(5, [1]))
    with pytest.raises(UsageError, match="removes all 6 blocks"):
        check_prunable(config, Mask.of(6, range(6)))
    check_prunable(config, Mask(6, frozenset({Site(2, Part.ATTN)})))


@pytest.mark.parametrize(
    ("config", "bad", "good", "reason"),
    [
        (tiny_config("beam"), [1], [4, 5], "only blocks at the end can go"),
        (tiny_config("inkling2_text"), [4, 5], [5], "only the last block, 5, can go"),
        (config_of("jamba", 32), [3], range(8, 16), "period"),
        (config_of("modernbert-decoder"), [0], [1], "block 0 must stay"),
        (tiny_config("rwkv"), [0], [5], "block 0 must stay"),
        (tiny_config("minimax"), [0, 5], [0, 1], "must have full attention"),
        (
            config_of("granitemoehybrid", layer_types=[L, L, F, L, L, L]),
            [2],
            [1],
            "no block with attention",
        ),
        (tiny_config("nemotron_h"), [2, 4], [2], "no block with attention"),
        (tiny_config("gemma3n_text"), [2], [4], "keys and values of block 2"),
        (tiny_config("gemma4_text"), [3], [4], "keys and values of block 3"),
        (tiny_config("gemma4"), [2, 3], [2, 4], "keys and values of block"),
        (tiny_config("gemma4_text[no_share]"), [5], [4, 5], "must have full attention"),
        (tiny_config("glm_moe_dsa"), [0, 1], [2], "shares the indexer"),
        (tiny_config("qwen4_exp_text"), [0], [5], "hash tables depend on their order"),
        (tiny_config("zamba"), [2], [1], "share one transformer"),
        (tiny_config("zamba2"), [1], [1, 3], "the turn of blocks 3, 5 would change"),
        (
            config_of("ernie4_5_moe", moe_layer_start_index=0, moe_layer_interval=2),
            [0],
            [0, 1],
            "moe_layer_interval",
        ),
    ],
)
def test_what_no_config_can_say_is_refused_with_the_reason(config, bad, good, reason):
    depth = depth_of(config)
    with pytest.raises(UnsupportedModelError, match=reason):
        check_prunable(config, Mask.of(depth, bad))
    prune_config(config, Mask.of(depth, good))
    assert len(why_not(config)) >= 1
    assert all("\n" not in note and not note.endswith(".") for note in why_not(config))


KINDS = ["jamba", "ernie4_5_moe[interval2]", "gemma4_text", "gemma3n_text", "zamba2", "dory"]


@pytest.mark.parametrize("family", [*KINDS, "olmo_hybrid", "bamba", "qwen3_5", "hrm_text"])
def test_quick_rules_and_the_config_class_agree(family):
    config, rng = tiny_config(family, depth=8), random.Random(0)
    for _ in range(12):
        mask = Mask.of(8, rng.sample(range(8), rng.randint(1, 7)))
        assert _allowed(check_prunable, config, mask) == _allowed(prune_config, config, mask)


def _allowed(check, config, mask):
    try:
        check(config, mask)
    except UnsupportedModelError:
        return False
    return True


def test_quick_rules_are_quick():
    config = tiny_config("gemma3_text", depth=48)
    masks = [Mask.of(48, [i, (i + 7) % 48]) for i in range(48)]
    begin = time.perf_counter()
    for mask in masks:
        check_prunable(config, mask)
    # A tenth of this is usual; another process may have had the core.
    assert (time.perf_counter() - begin) / len(masks) < 0.02


def test_looped_stack_counts_its_sections():
    config = tiny_config("dory")
    pruned = prune_config(config, Mask.of(6, [1, 3]))
    found = [pruned.n_input_layers, pruned.n_recurrent_layers, pruned.n_output_layers]
    assert found == [1, 1, 2]
    two = prune_config(tiny_config("hrm_text"), Mask.of(6, [1, 3]))
    assert two.num_layers_per_stack == 4
    assert two.num_hidden_layers == 4 * two.H_cycles * (two.L_cycles + 1)


def test_depth_fields_of_other_names_are_set():
    assert prune_config(tiny_config("longcat_flash"), Mask.of(6, [1])).num_layers == 5
    xlstm = prune_config(tiny_config("xlstm"), Mask.of(6, [1]))
    assert (xlstm.num_blocks, xlstm.num_hidden_layers) == (5, 5)
    bart = prune_config(tiny_config("bart"), Mask.of(6, [1]))
    assert (bart.decoder_layers, bart.encoder_layers) == (5, 6)
    blt = prune_config(tiny_config("blt"), Mask.of(6, [1]))
    assert blt.global_config.num_hidden_layers == 5
    assert blt.decoder_config.num_hidden_layers == 2


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_schedule_that_is_found_marks_what_it_should(marks):
    for names in (*PERIODS, INTERVAL):
        found = fit(names, marks)
        if found is None:
            continue
        config = PreTrainedConfig(**found)
        assert marked(config, len(marks))[names] == marks


def test_schedule_is_found_wherever_there_is_one():
    for depth in range(1, 9):
        for period in range(1, 5):
            for offset in range(period):
                marks = [i % period == offset for i in range(depth)]
                assert fit(PERIODS[0], marks) is not None
