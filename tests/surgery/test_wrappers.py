"""Wrappers that also take images: the language model inside is pruned, the rest is left alone."""

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForImageTextToText

from shoal.core.mask import Mask
from shoal.engine.selfcheck import choose_runner
from shoal.models.load import load_dense
from shoal.models.source import resolve
from shoal.surgery.export import export, export_files
from shoal.testing.scoring import plain_logprobs, runner_logprobs, tiny_batch

TEXT = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
ROTARY = {
    "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10_000.0}
}
TOWER = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 16,
    "patch_size": 4,
}
QWEN = {
    "image_token_id": 120,
    "video_token_id": 121,
    "vision_start_token_id": 122,
    "vision_end_token_id": 123,
}
SIGHT = {
    "depth": 2,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_heads": 2,
    "out_hidden_size": 32,
    "patch_size": 4,
}

WRAPPERS = {
    "qwen2_5_vl": {"text_config": TEXT | ROTARY, "vision_config": SIGHT, **QWEN},
    "qwen3_vl": {
        "text_config": TEXT | ROTARY,
        "vision_config": SIGHT | {"deepstack_visual_indexes": [0]},
        **QWEN,
    },
    "mistral3": {
        "text_config": TEXT | {"model_type": "mistral"},
        "vision_config": TOWER | {"model_type": "pixtral", "head_dim": 16},
        "image_token_index": 120,
    },
    "llava": {
        "text_config": TEXT | {"model_type": "llama"},
        "vision_config": TOWER | {"model_type": "clip_vision_model", "projection_dim": 32},
        "image_token_index": 120,
    },
}


@pytest.fixture(scope="module", params=WRAPPERS)
def folder(request, tmp_path_factory):
    config = AutoConfig.for_model(request.param, **WRAPPERS[request.param])
    torch.manual_seed(0)
    model = AutoModelForImageTextToText.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.15 * torch.randn_like(parameter))
    path = tmp_path_factory.mktemp("wrapper") / request.param
    model.save_pretrained(path)
    return path


@pytest.mark.parametrize("text", ["-[1,3]", "-[1.mlp,2.attn]", "-[2.attn]"])
def test_the_language_model_is_pruned(folder, tmp_path, text):
    dense, mask = load_dense(str(folder)), Mask.parse(text, 6)
    assert dense.blocks.path == "model.language_model.layers"
    report = export(dense, mask, tmp_path / "out")
    assert report.max_logit_difference < 1e-5
    written = load_dense(str(tmp_path / "out"))
    batch = tiny_batch()
    expected = runner_logprobs(choose_runner(dense, batch).runner, batch, [mask])[mask]
    assert (plain_logprobs(written.module, batch) - expected).abs().max() < 1e-4


def test_what_sees_is_left_alone(folder, tmp_path):
    export_files(resolve(str(folder)), Mask.of(6, [1, 3]), tmp_path / "out")
    before = load_file(folder / "model.safetensors")
    after = load_file(tmp_path / "out" / "model.safetensors")
    outside = {name for name in before if ".layers." not in name or "vision" in name}
    assert any("vision" in name or "visual" in name for name in outside)
    assert outside <= set(after)
    assert all(torch.equal(after[name], before[name]) for name in outside)
