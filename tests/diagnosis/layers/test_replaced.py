"""Sites of another checkpoint in the dense model's places."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from shoal.core.errors import UnsupportedModelError, UsageError
from shoal.core.mask import Part, Site
from shoal.diagnosis.layers.layerwise import layerwise
from shoal.diagnosis.layers.positions import thinned_batches
from shoal.diagnosis.layers.replaced import Replacing
from shoal.diagnosis.layers.sites import find_sites
from shoal.diagnosis.passages import Passage
from shoal.diagnosis.quantities import QUANTITIES
from shoal.diagnosis.sides import dense_side
from shoal.diagnosis.spaces import Look
from shoal.models.dense import DenseModel
from shoal.models.load import load_dense
from shoal.testing.tiny import tiny_model

TEXTS = [Passage((5, 9, 77, 3), (8, 1, 30)), Passage((100, 4), (2, 60, 61, 7))]


def changed(dense: DenseModel, layer: int | None = None, part: Part = Part.BLOCK) -> DenseModel:
    """A copy of a model, with other weights in one place."""
    module = deepcopy(dense.module)
    other = DenseModel(module, dense.tokenizer, dense.source)
    generator = torch.Generator().manual_seed(1)
    if layer is not None:
        branch = dense.branches[layer].branch(part)
        with torch.no_grad():
            for member in branch.members if branch else ():
                for p in other.blocks.layers[layer].get_submodule(member).parameters():
                    p.add_(0.05 * torch.randn(p.shape, generator=generator))
    return other


def run(dense: DenseModel, other: DenseModel):
    side = dense_side(dense, thinned_batches(TEXTS, 8, 64)[0].tokens)
    return layerwise(
        side, TEXTS, Look(1.0, (3, 4)), replacement=other, positions=3, batch_tokens=64
    )


@pytest.mark.parametrize("family", ["llama", "cohere", "gpt2", "falcon"])
def test_the_same_model_changes_nothing(tiny_dense, family) -> None:
    found = run(tiny_dense(family), changed(tiny_dense(family)))
    assert (found.mode, len(found.sites)) == ("replaced", 18)
    for row in found.sites:
        for means in (row.normed, row.raw, row.final):
            assert means["kl"].count == len(TEXTS)
            for name, mean in means.items():
                assert QUANTITIES[name].describes_dense or mean.value == 0, (row.site, name)


@pytest.mark.parametrize("family", ["llama", "cohere", "falcon"])
@pytest.mark.parametrize("part", [Part.ATTN, Part.MLP])
def test_only_the_site_that_differs_and_its_block_show_it(tiny_dense, family, part) -> None:
    dense = tiny_dense(family)
    found = run(dense, changed(dense, 2, part))
    for means in ("normed", "raw", "final"):
        moved = {row.site for row in found.sites if getattr(row, means)["kl"].value > 1e-9}
        assert moved == {"2", f"2.{part}"}, means
        rows = {row.site: getattr(row, means) for row in found.sites}
        if means == "final":
            # At the end it does not matter whether the rest of the block was replaced, too.
            expected = rows["2"]["kl"].value
            assert rows[f"2.{part}"]["kl"].value == pytest.approx(expected, rel=1e-3)


@torch.inference_mode()
def test_the_other_site_reads_the_dense_model_s_whole_context() -> None:
    dense, other = (load_dense(tiny_model("llama", seed=seed)) for seed in (0, 1))
    batch = thinned_batches(TEXTS[:1], 8, 64)[0].tokens
    side = dense_side(dense, batch)
    replacing = Replacing(dense, side.runner, other, batch, find_sites(dense))
    swaps = {swap.site: swap for swap in replacing.swaps(batch)}
    site = Site(3, Part.ATTN)
    entered = _entering(dense, 3, batch)
    own, added = _attention_in_its_own_forward(other, 3, batch, entered)
    torch.testing.assert_close(swaps[site].other, entered + added, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(swaps[Site(3)].other, own, atol=1e-5, rtol=1e-5)
    # What the last position sees alone, without its context, is something else.
    alone = replace(batch, input_ids=batch.input_ids[:, -1:])
    _, lonely = _attention_in_its_own_forward(other, 3, alone, entered[:, -1:])
    assert (added[:, -1] - lonely[:, -1]).abs().max() > 1e-2


@torch.inference_mode()
def test_the_end_is_the_dense_model_with_that_module_in_it() -> None:
    dense, other = (load_dense(tiny_model("llama", seed=seed)) for seed in (0, 1))
    batch = thinned_batches(TEXTS, 8, 64)[0].tokens
    side = dense_side(dense, batch)
    replacing = Replacing(dense, side.runner, other, batch, find_sites(dense))
    for swap in replacing.swaps(batch):
        if swap.site.layer != 2:
            continue
        mixed = deepcopy(dense.module)
        mine, theirs = mixed.model.layers, other.module.model.layers[2]
        if swap.site.part is Part.BLOCK:
            mine[2] = theirs
        elif swap.site.part is Part.ATTN:
            mine[2].self_attn, mine[2].input_layernorm = theirs.self_attn, theirs.input_layernorm
        else:
            mine[2].mlp = theirs.mlp
            mine[2].post_attention_layernorm = theirs.post_attention_layernorm
        logits = mixed(batch.input_ids, use_cache=False).logits.reshape(-1, 128)[batch.rows]
        scorer = swap.end()
        torch.testing.assert_close(scorer.head.logits(scorer.states), logits, atol=1e-4, rtol=1e-4)


def _entering(dense: DenseModel, layer: int, batch) -> torch.Tensor:
    seen = []

    def hook(module, args, kwargs):
        seen.append(args[0] if args else kwargs["hidden_states"])

    handle = dense.blocks.layers[layer].register_forward_pre_hook(hook, with_kwargs=True)
    with torch.inference_mode():
        dense.module(batch.input_ids, use_cache=False)
    handle.remove()
    return seen[0].clone()


def _attention_in_its_own_forward(model: DenseModel, layer: int, batch, entered: torch.Tensor):
    """What a block returns and its attention adds in its model's own forward, given a state."""
    seen = {}

    def enter(module, args, kwargs):
        return (entered, *args[1:]), kwargs

    def leave(module, args, output):
        seen["block"] = output

    def attention(module, args, output):
        seen["update"] = output[0]

    block = model.blocks.layers[layer]
    handles = [
        block.register_forward_pre_hook(enter, with_kwargs=True),
        block.register_forward_hook(leave),
        block.self_attn.register_forward_hook(attention),
    ]
    with torch.inference_mode():
        model.module(batch.input_ids, use_cache=False)
    for handle in handles:
        handle.remove()
    return seen["block"], seen["update"]


def test_a_model_of_another_depth_is_refused(tiny_dense) -> None:
    with pytest.raises(UsageError, match=r"with 6 blocks of size 32.*with 4 blocks"):
        run(tiny_dense("llama"), load_dense(tiny_model("llama", depth=4)))


def test_a_model_of_another_class_is_refused(tiny_dense) -> None:
    with pytest.raises(UsageError, match="same class"):
        run(tiny_dense("llama"), tiny_dense("qwen3"))


def test_blocks_that_cannot_run_singly_are_refused(tiny_dense) -> None:
    dense = tiny_dense("xlnet")
    with pytest.raises(UnsupportedModelError, match="one by one"):
        run(dense, dense)


def test_a_checkpoint_in_another_dtype_reads_the_state_in_its_own(tiny_dense) -> None:
    dense = tiny_dense("llama")
    half = DenseModel(deepcopy(dense.module).bfloat16(), dense.tokenizer, dense.source)
    found = run(dense, half)
    for row in found.sites:
        assert 0 < row.normed["kl"].value < 0.01
        assert 0 < row.final["kl"].value < 0.05
