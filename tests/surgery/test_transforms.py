"""Tensors that have to change: whatever they go into, the model is the muted dense model."""

import pytest
import torch

from shoal.core.layout import Layout
from shoal.core.mask import Mask
from shoal.models.load import load_dense
from shoal.models.masked import muted
from shoal.surgery.export import export
from shoal.surgery.memory import shallow_model
from shoal.surgery.probe import logits_of, probe_tokens
from shoal.surgery.transforms import keep_slices
from shoal.testing.tiny import save_tiny, tiny_model

# A block that goes from the front, the middle and the end, where the type allows it.
CASES = {
    "gpt2[inverse_layer_idx]": [0, 3],
    "diffllama": [0, 3],
    "minicpm3": [0, 3],
    "gemma3n_text": [0, 4],
    "gemma4_text": [0, 4],
    "gemma4": [1, 4],
    "gpt_neox_japanese": [1, 5],
    "zaya": [0, 3],
    "zamba": [0, 5],
    "zamba2": [1, 3],
    "dory": [0, 3],
    "hrm_text": [0, 3],
    "xlnet": [0, 3],
    "reformer": [0, 3],
    "glm_moe_dsa": [2, 4],
    "bart": [0, 3],
    "longcat_flash": [0, 3],
    "blt": [0, 3],
}


@pytest.mark.parametrize(("family", "blocks"), CASES.items())
def test_pruned_model_is_the_muted_dense_model(family, blocks):
    dense = load_dense(tiny_model(family))
    mask = Mask.of(6, blocks)
    tokens = probe_tokens(dense, 2, 8)
    plain = logits_of(dense.module, tokens)
    with muted(dense.blocks, mask):
        expected = logits_of(dense.module, tokens)
    found = logits_of(shallow_model(dense, mask), tokens)
    assert (found - expected).abs().max() <= 1e-4 * expected.abs().max()
    assert (found - plain).abs().max() > 1e-2
    assert torch.equal(logits_of(dense.module, tokens), plain)


@pytest.mark.parametrize(
    ("family", "blocks", "route"),
    [
        ("diffllama", [0, 3], "file"),
        ("gpt2[inverse_layer_idx]", [0, 3], "file"),
        ("gemma3n_text", [0, 4], "file"),
        ("gpt_neox_japanese", [5], "file"),
        ("zamba2", [1, 3], "file"),
        ("exaone", [1], "file"),
        ("inkling2_text", [5], "memory"),
    ],
)
def test_files_are_changed_tensor_by_tensor(family, blocks, route, tmp_path):
    dense = load_dense(str(save_tiny(family, tmp_path / "dense", tokenizer=False)))
    report = export(dense, Mask.of(6, blocks), tmp_path / "out")
    assert report.route == route
    assert report.checks["relative_logit_difference"] < 1e-5


def test_rwkv_halves_its_weights_anew_and_the_dense_model_keeps_its_own():
    dense = load_dense(tiny_model("rwkv[rescale]"))
    mask, tokens = Mask.of(6, [1, 4]), probe_tokens(dense, 1, 0)
    for _ in range(2):
        with muted(dense.blocks, mask):
            expected = logits_of(dense.module, tokens)
        found = logits_of(shallow_model(dense, mask), tokens)
        assert (found - expected).abs().max() <= 1e-4 * expected.abs().max()


def test_slices_of_the_kept_blocks_stay_on_either_axis():
    layout = Layout.of(Mask.of(3, [1]))
    packed = torch.arange(12.0).view(2, 6)
    assert keep_slices(packed, layout, 1).tolist() == [[0, 1, 4, 5], [6, 7, 10, 11]]
    assert torch.equal(keep_slices(packed.T, layout, 0), keep_slices(packed, layout, 1).T)
