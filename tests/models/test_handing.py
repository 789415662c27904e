"""Blocks that depend on one another beside the hidden state are never run singly."""

import pytest

from shoal.core.mask import Mask
from shoal.engine.selfcheck import choose_runner
from shoal.models.handing import obstacle_to_replay
from shoal.models.load import load_dense
from shoal.models.sublayers import random_batch
from shoal.testing.tiny import tiny_model

REASONS = {
    "glm_moe_dsa": "hand states to one another",
    "zaya": "hand states to one another",
    "reformer": "hand states to one another",
    "gemma4_text": "what other blocks have kept",
    "dory": "not run once each",
    "hrm_text": "several stacks",
}


@pytest.mark.parametrize(("family", "reason"), REASONS.items())
def test_dependence_is_found_and_the_whole_model_is_run(family, reason):
    dense = load_dense(tiny_model(family))
    batch = random_batch(dense, 2, 12)
    assert reason in str(obstacle_to_replay(dense, batch))
    choice = choose_runner(dense, batch)
    assert choice.runner.name == "whole"
    assert reason in choice.reason
    masks = [Mask.dense(6), Mask.of(6, [4])]
    assert {mask for mask, _ in choice.runner.run(None, batch, masks)} == set(masks)


@pytest.mark.parametrize("family", ["llama", "bloom", "falcon", "mamba", "gemma3_text", "zamba2"])
def test_ordinary_blocks_may_be_run_singly(family):
    dense = load_dense(tiny_model(family))
    assert obstacle_to_replay(dense, random_batch(dense, 2, 12)) is None


@pytest.mark.parametrize("family", ["xlnet", "blt", "rwkv[rescale]", "openai-gpt", "cpmant"])
def test_blocks_that_return_more_give_one_way_or_the_other(family):
    dense = load_dense(tiny_model(family))
    choice = choose_runner(dense, random_batch(dense, 2, 12))
    assert choice.runner.name in ("replay", "whole")
    assert choice.reason
