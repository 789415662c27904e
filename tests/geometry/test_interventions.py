"""Interventions against the dense and the masked model, and against arithmetic done by hand."""

import copy
import itertools
from contextlib import ExitStack

import pytest
import torch

from shoal.config.lab import FamilyConfig, LabModelConfig
from shoal.core.errors import UnsupportedModelError, UsageError
from shoal.core.mask import Mask
from shoal.geometry.interventions import mapped, removed, scaled, scaling_form
from shoal.geometry.maps import AffineMap
from shoal.geometry.stack import Batch, Stack, llm_stack, states
from shoal.lab.functions import draw_prompts
from shoal.lab.model import LabModel
from shoal.lab.stack import lab_stack, lab_texts
from shoal.models.discover import Blocks
from shoal.models.load import load_dense
from shoal.models.masked import muted, skipped
from shoal.testing.scoring import tiny_batch
from shoal.testing.tiny import TINY_FAMILIES, tiny_model

UNTOLD = {"openai-gpt", "rwkv"}
"""Families some of whose blocks are not their input plus something."""

FAMILIES = (*TINY_FAMILIES, "phi", "mpt", "zamba2", *sorted(UNTOLD))
"""Among them blocks with attention and MLP side by side (cohere, gpt_neox, falcon, phi), and blocks
that return tuples (mpt, rwkv, openai-gpt)."""

FORMS = ["updates", "block"]


def logits_of(dense):
    with torch.no_grad():
        return dense.module(**tiny_batch().forward_arguments(dense.dtype)).logits


def output(stack, batch):
    return stack.run(batch.inputs)


def random_affine(width, seed, scale=0.3):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    return AffineMap(torch.eye(width) + scale * draw(width, width), draw(width), draw(width))


def identity(width):
    centre = torch.linspace(-1, 1, width, dtype=torch.float64)
    return AffineMap(torch.eye(width, dtype=torch.float64), centre, centre)


def hooks_in(stack):
    return [
        len(m._forward_hooks) + len(m._forward_pre_hooks)
        for layer in stack.blocks.layers
        for m in layer.modules()
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_alpha_1_is_dense_and_0_is_masked(tiny_dense, family):
    dense = tiny_dense(family)
    stack, mask = llm_stack(dense), Mask.of(6, [1, 3])
    forms = ["block"] if family in UNTOLD else FORMS
    assert scaling_form(stack) == forms[0]
    plain = logits_of(dense)
    with muted(dense.blocks, mask):
        masked = logits_of(dense)
    assert not torch.allclose(plain, masked, atol=1e-2)
    for form in forms:
        with scaled(stack, {1: 1.0, 3: 1.0}, form):
            assert torch.equal(logits_of(dense), plain)
        with scaled(stack, {1: 0.0, 3: 0.0}, form):
            assert torch.equal(logits_of(dense), masked)
        # The two ends are limits of what lies between them.
        with scaled(stack, {1: 1 - 1e-6, 3: 1 + 1e-6}, form):
            assert torch.allclose(logits_of(dense), plain, atol=1e-2)
        with scaled(stack, {1: 1e-6, 3: 1e-6}, form):
            assert torch.allclose(logits_of(dense), masked, atol=1e-2)
        with scaled(stack, {1: 0.5, 3: 0.5}, form):
            between = logits_of(dense)
        assert not torch.allclose(between, plain, atol=1e-2)
        assert not torch.allclose(between, masked, atol=1e-2)


@pytest.mark.parametrize("form", [None, *FORMS])
def test_the_ends_of_alpha_in_the_lab(lab, form):
    stack, batch = lab
    plain = output(stack, batch)
    with removed(stack, Mask.of(4, [0, 2])):
        masked = output(stack, batch)
    with scaled(stack, {0: 1, 2: 1}, form):
        assert torch.equal(output(stack, batch), plain)
    with scaled(stack, {0: 0, 2: 0}, form):
        assert torch.equal(output(stack, batch), masked)
    assert not torch.allclose(plain, masked, atol=1e-2)


@pytest.mark.parametrize("text", ["-[1,3]", "-[0.attn,2.mlp]", "-[0,1.mlp,3.attn]"])
def test_removed_equals_skipped(lab, tiny_dense, text):
    stack, batch = lab
    mask = Mask.parse(text, 4)
    with skipped(stack.blocks, mask, stack.branches):
        expected = output(stack, batch)
    with removed(stack, mask):
        assert torch.equal(output(stack, batch), expected)
    dense = tiny_dense("cohere")
    mask = Mask.parse(text, 6)
    with skipped(dense.blocks, mask, dense.branches):
        expected = logits_of(dense)
    with removed(llm_stack(dense), mask):
        assert torch.equal(logits_of(dense), expected)


def test_scaled_updates_are_scaled_output_matrices(tiny_dense):
    dense = tiny_dense("llama")
    scale = {1: 0.3, 4: 1.5}
    other = copy.deepcopy(dense.module)
    with torch.no_grad():
        for layer, alpha in scale.items():
            block = other.model.layers[layer]
            block.self_attn.o_proj.weight.mul_(alpha)
            block.mlp.down_proj.weight.mul_(alpha)
        expected = other(**tiny_batch().forward_arguments(dense.dtype)).logits
    for form in (None, "updates"):
        with scaled(llm_stack(dense), scale, form):
            assert torch.allclose(logits_of(dense), expected, atol=1e-5)
    with scaled(llm_stack(dense), scale, "block"):
        assert not torch.allclose(logits_of(dense), expected, atol=1e-2)


def test_scaled_blocks_are_points_between_the_two_states(lab):
    stack, batch = lab
    plain = states(stack, batch)
    for alpha in (0.3, 1.5):
        with scaled(stack, {1: alpha}, "block"):
            found = states(stack, batch)
        assert torch.allclose(found[2], plain[1] + alpha * (plain[2] - plain[1]), atol=1e-6)
        assert torch.equal(found[1], plain[1])


def test_side_by_side_both_forms_are_one(tiny_dense):
    stack = llm_stack(tiny_dense("cohere"))
    batch = Batch.of(tiny_batch(), torch.ones(tiny_batch().input_ids.shape, dtype=torch.bool))
    with scaled(stack, {2: 0.4}, "updates"):
        one = states(stack, batch)
    with scaled(stack, {2: 0.4}, "block"):
        other = states(stack, batch)
    assert torch.allclose(one[-1], other[-1], atol=1e-4)


def test_without_branches_blocks_are_scaled(lab):
    stack, batch = lab
    bare = Stack(stack.blocks, stack.run)
    assert scaling_form(bare) == "block"
    with scaled(stack, {1: 0.5}, "block"):
        expected = output(stack, batch)
    with scaled(bare, {1: 0.5}):
        assert torch.equal(output(bare, batch), expected)
    with (
        pytest.raises(UnsupportedModelError, match="Use the form block"),
        scaled(bare, {1: 0.5}, "updates"),
    ):
        pass


def test_a_module_shared_by_blocks_is_not_scaled(lab):
    stack, _ = lab
    layers = copy.deepcopy(stack.blocks.layers)
    layers[2].mlp = layers[1].mlp
    shared = Stack(Blocks("layers", layers), stack.run, stack.branches)
    assert scaling_form(shared) == "block"
    with (
        pytest.raises(UnsupportedModelError, match="share a module"),
        scaled(shared, {1: 0.5}, "updates"),
    ):
        pass


@pytest.mark.parametrize("form", FORMS)
def test_what_is_scaled_by_zero_may_be_infinite(form):
    model = LabModel(LabModelConfig(layers=3, width=8, heads=2, points=5)).requires_grad_(False)
    batch = lab_texts(draw_prompts(FamilyConfig(), 2, 5, 0), "id").batches[0]
    stack = lab_stack(model)
    with removed(stack, Mask.of(3, [1])):
        expected = output(stack, batch)
    model.backbone.h[1].mlp.c_proj.bias[0] = torch.inf
    model.backbone.h[1].attn.c_proj.bias[1] = -torch.inf
    assert not output(stack, batch).isfinite().all()
    with scaled(stack, {1: 0.0}, form):
        assert torch.equal(output(stack, batch), expected)


def test_interventions_compose_in_any_order(lab):
    stack, batch = lab
    one = random_affine(16, 3)
    inputs, layers = states(stack, batch)[0], stack.blocks.layers
    with torch.no_grad():
        hidden = layers[0](inputs)
        hidden = hidden + 0.5 * (layers[2](hidden) - hidden)
        expected = one(layers[3](hidden))
    makers = (
        lambda: removed(stack, Mask.of(4, [1])),
        lambda: scaled(stack, {2: 0.5}, "block"),
        lambda: mapped(stack, {3: one}),
    )
    for order in itertools.permutations(makers):
        with ExitStack() as contexts:
            for make in order:
                contexts.enter_context(make())
            found = states(stack, batch)
        assert torch.allclose(found[-1], expected, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("alpha", [0.0, 0.4])
def test_a_map_acts_on_what_the_scaled_block_gives(lab, form, alpha):
    stack, batch = lab
    one = random_affine(16, 4)
    with scaled(stack, {1: alpha}, form):
        expected = one(states(stack, batch)[2])
    with scaled(stack, {1: alpha}, form), mapped(stack, {1: one}):
        assert torch.equal(states(stack, batch)[2], expected)
    with mapped(stack, {1: one}), scaled(stack, {1: alpha}, form):
        assert torch.equal(states(stack, batch)[2], expected)


def test_scales_of_one_block_multiply(lab):
    stack, batch = lab
    with scaled(stack, {1: 0.2}, "block"):
        expected = states(stack, batch)
    with scaled(stack, {1: 0.5}, "block"), scaled(stack, {1: 0.4}, "block"):
        found = states(stack, batch)
    assert torch.allclose(found[-1], expected[-1], atol=1e-6)


def test_maps_are_kept_where_the_removal_was_first(lab):
    stack, batch = lab
    one, mask = random_affine(16, 5), Mask.of(4, [1])
    with removed(stack, mask), mapped(stack, {1: one}):
        found = states(stack, batch)
    assert torch.equal(found[2], one(found[1]))
    with mapped(stack, {1: one}), removed(stack, mask):
        found = states(stack, batch)
    assert torch.equal(found[2], found[1])


@pytest.mark.parametrize(
    "place",
    [
        lambda s: removed(s, Mask.parse("-[1,2.attn]", 4)),
        lambda s: scaled(s, {0: 0.0, 1: 0.5}),
        lambda s: scaled(s, {0: 0.0, 1: 0.5}, "block"),
        lambda s: mapped(s, {2: random_affine(16, 0), 3: [(slice(2), random_affine(16, 1))]}),
    ],
)
def test_nothing_stays_behind(lab, place):
    stack, batch = lab
    before, plain = hooks_in(stack), output(stack, batch)
    with place(stack):
        assert hooks_in(stack) != before
        assert not torch.equal(output(stack, batch), plain)
    assert hooks_in(stack) == before
    with pytest.raises(ZeroDivisionError), place(stack):
        raise ZeroDivisionError
    assert hooks_in(stack) == before
    assert torch.equal(output(stack, batch), plain)


def test_maps_that_do_not_fit_are_refused_and_leave_nothing(lab):
    stack, batch = lab
    before = hooks_in(stack)
    overlap = [(slice(0, 3), identity(16)), (slice(2, 4), identity(16))]
    for maps, why in ((identity(8), "map of width 8"), (overlap, "act on the same positions")):
        with mapped(stack, {1: maps}), pytest.raises(UsageError, match=why):
            output(stack, batch)
    assert hooks_in(stack) == before


@pytest.mark.parametrize("layer", [-1, 4])
def test_blocks_that_are_not_there_are_refused(lab, layer):
    stack, _ = lab
    for place in (scaled(stack, {layer: 0.5}), mapped(stack, {layer: identity(16)})):
        with pytest.raises(UsageError, match="blocks 0 to 3"), place:
            pass


def test_wrong_requests_are_refused(lab):
    stack, _ = lab
    with pytest.raises(UsageError, match="for 6 blocks"):
        removed(stack, Mask.of(6, [1]))
    with pytest.raises(UsageError, match="must be finite"), scaled(stack, {1: float("nan")}):
        pass
    with pytest.raises(UsageError, match="Known: updates, block"), scaled(stack, {1: 0}, "both"):
        pass


def test_blocks_with_parts_in_several_stacks():
    """Scaled in all of them; no single state leaves such a block."""
    dense = load_dense(tiny_model("hrm_text", depth=4))
    stack, mask = Stack(dense.blocks, lambda _: None), Mask.of(dense.depth, [1])
    with removed(stack, mask):
        masked = logits_of(dense)
    with scaled(stack, {1: 0.0}):
        assert torch.equal(logits_of(dense), masked)
    with scaled(stack, {1: 1e-6}):
        assert torch.allclose(logits_of(dense), masked, atol=1e-2)
    with (
        pytest.raises(UnsupportedModelError, match="no single state"),
        mapped(stack, {1: identity(32)}),
    ):
        pass
