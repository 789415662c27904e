"""Gate derivatives against finite differences and against one example at a time, in float64."""

import copy

import numpy as np
import pytest
import torch

from shoal.config.objectives import (
    AccuracyConfig,
    KlConfig,
    LikelihoodConfig,
    MarginConfig,
    NllConfig,
)
from shoal.core.errors import NotFiniteError, UnsupportedModelError, UsageError
from shoal.data import Choice, ChoiceItem, ChoiceSet, Corpus, Tokenisation
from shoal.engine.gate_forms import gates_for
from shoal.engine.gates import gate_gradients
from shoal.models.dense import DenseModel
from shoal.models.hidden import hidden_of, input_of, with_hidden
from shoal.objectives.build import build_objective
from shoal.testing.tiny import TINY_FAMILIES

# What these add is scaled by a constant on the way.
SCALED = {"granite", "granitemoehybrid"}

LINES = ["a short one", "this is the second document , a bit longer .", "and a third , in between"]
TEXTS = Corpus.of("lambada", "train", LINES, "here")
ITEMS = ChoiceSet.of(
    "toy",
    "train",
    [
        ChoiceItem(str(i), tuple(Choice(prompt, c) for c in choices), gold)
        for i, (prompt, choices, gold) in enumerate(
            [
                ("the cat sat on a", (" mat", " large dog there", " x"), 2),
                ("how many?", (" one", " two"), 1),
                ("a longer prompt than the other ones:", (" a b", " b", " c"), 0),
            ]
        )
    ],
    "here",
)


@pytest.fixture
def double(tiny_dense):
    """Family -> a copy of its tiny model in float64."""

    def make(family):
        dense = tiny_dense(family)
        module = copy.deepcopy(dense.module).double()
        return DenseModel(module, dense.tokenizer, dense.source)

    return make


def objective_on(dense, config, data, **options):
    options = {"batch_tokens": 160, "length": 64, **options}
    return build_objective(config, data, dense, tokenisation=Tokenisation(), **options)


def loss_of(objective, dense, place):
    """Loss of one example from full logits in the model's own dtype, by the objective's rule."""
    batch, at = next((b, b.examples.index(place)) for b in objective.batches if place in b.examples)

    class Plain:
        def token_logprobs(self, pick, targets):
            return table[pick, targets]

    logits = dense.module(**batch.tokens.forward_arguments(dense.dtype)).logits
    table = logits.reshape(-1, logits.shape[-1])[batch.tokens.rows].log_softmax(-1)
    return objective.losses(Plain(), batch)[at]


def updates_of(dense, form=None):
    """The modules that each gate scales, by the branches that were found."""
    return [gate.updates for gate in gates_for(dense, form)[1]]


def gated(dense, layer, alpha, updates):
    """Hooks that scale one gate's updates, or one block's change, by a scalar."""

    def update(module, args, kwargs, output):
        return with_hidden(output, (output if torch.is_tensor(output) else output[0]) * alpha)

    def block(module, args, kwargs, output):
        h = input_of(args, kwargs)
        return with_hidden(output, h + alpha * (hidden_of(output) - h))

    if updates is None:
        owner = dense.blocks.layers[layer]
        return [owner.register_forward_hook(block, with_kwargs=True)]
    return [m.register_forward_hook(update, with_kwargs=True) for m in updates[layer]]


# Norms compute in float32 even in a float64 model, so steps must not be tiny: four points leave an
# error of the order of STEP ** 4.
STEP, STENCIL = 4e-3, {-2: 1 / 12, -1: -8 / 12, 1: 8 / 12, 2: -1 / 12}
CLOSE = {"rel": 5e-4, "abs": 1e-4}


def expected(dense, objective, updates, step=STEP):
    """Finite differences of every example's loss by every gate."""
    rows = np.zeros((objective.num_examples, dense.depth if updates is None else len(updates)))
    for layer in range(rows.shape[1]):
        for at, weight in STENCIL.items():
            hooks = gated(dense, layer, 1 + at * step, updates)
            with torch.inference_mode():
                for example in range(objective.num_examples):
                    loss = float(loss_of(objective, dense, example))
                    rows[example, layer] += weight * loss / step
            for hook in hooks:
                hook.remove()
    return rows


@pytest.mark.parametrize("family", ["llama", "gemma2", "falcon", "gpt2", "opt", "bloom", "granite"])
@pytest.mark.parametrize("form", [None, "block"])
def test_texts_equal_finite_differences(double, family, form):
    dense = double(family)
    objective = objective_on(dense, NllConfig(), TEXTS)
    assert max(len(b.examples) for b in objective.batches) > 1
    found = gate_gradients(dense, objective, form=form)
    updates = updates_of(dense) if form is None else None
    assert found.form == (form or "updates")
    # The kinks of ReLU want a small step, and this family computes all in float64.
    step = 1e-5 if family == "opt" else STEP
    assert found.values == pytest.approx(expected(dense, objective, updates, step), **CLOSE)


@pytest.mark.parametrize("config", [MarginConfig(), MarginConfig(pair="max"), LikelihoodConfig()])
@pytest.mark.parametrize(("family", "packed"), [("gpt2", True), ("phi3", True), ("lfm2", False)])
def test_choices_equal_finite_differences(double, config, family, packed):
    dense = double(family)
    objective = objective_on(dense, config, ITEMS, pack_choices=packed)
    assert (objective.batches[0].tokens.attend is not None) is packed
    assert len(objective.batches[0].examples) > 1
    updates = updates_of(dense)
    found = gate_gradients(dense, objective)
    assert found.values == pytest.approx(expected(dense, objective, updates), **CLOSE)


def test_llama_gates_scale_the_output_matrices(double):
    """The form `updates` by another road: both output matrices of a block times alpha."""
    dense = double("llama")
    objective = objective_on(dense, NllConfig(), TEXTS)
    found = gate_gradients(dense, objective).values
    for layer, block in enumerate(dense.blocks.layers):
        slope = np.zeros(objective.num_examples)
        weights = [block.self_attn.o_proj.weight, block.mlp.down_proj.weight]
        kept = [w.detach().clone() for w in weights]
        with torch.no_grad():
            for at, weight in STENCIL.items():
                for w, old in zip(weights, kept, strict=True):
                    w.copy_(old * (1 + at * STEP))
                losses = [float(loss_of(objective, dense, e)) for e in range(len(slope))]
                slope += np.array(losses) * weight / STEP
            for w, old in zip(weights, kept, strict=True):
                w.copy_(old)
        assert found[:, layer] == pytest.approx(slope, **CLOSE)


@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_batches_equal_one_example_at_a_time(tiny_dense, family):
    dense = tiny_dense(family)
    together = gate_gradients(dense, objective_on(dense, NllConfig(), TEXTS))
    alone = gate_gradients(dense, objective_on(dense, NllConfig(), TEXTS, batch_tokens=1))
    assert together.form == alone.form == "updates"
    scale = np.abs(alone.values).max()
    assert together.values == pytest.approx(alone.values, abs=2e-5 * scale)
    assert (np.abs(alone.values).max(0) > 0).all()


@pytest.mark.parametrize("packed", [True, False])
def test_examples_add_up_to_the_gradient_of_the_sum(double, packed):
    dense = double("phi3")
    objective = objective_on(dense, MarginConfig(), ITEMS, pack_choices=packed)
    found = gate_gradients(dense, objective).values.sum(0)
    updates = updates_of(dense)
    for layer in range(dense.depth):
        alpha = torch.ones((), dtype=torch.float64, requires_grad=True)
        hooks = gated(dense, layer, alpha, updates)
        total = sum(loss_of(objective, dense, e) for e in range(objective.num_examples))
        (slope,) = torch.autograd.grad(total, alpha)
        for hook in hooks:
            hook.remove()
        assert found[layer] == pytest.approx(float(slope), rel=1e-4, abs=1e-6)


def test_low_precision_is_near_and_changes_nothing(tiny_dense):
    dense = tiny_dense("llama")
    low = DenseModel(copy.deepcopy(dense.module).bfloat16(), dense.tokenizer, dense.source)
    low.module.lm_head.weight.requires_grad_(False)
    flags = [p.requires_grad for p in low.module.parameters()]
    found = gate_gradients(low, objective_on(low, NllConfig(), TEXTS))
    assert found.form == "updates"
    assert found.values.dtype == np.float64
    exact = gate_gradients(dense, objective_on(dense, NllConfig(), TEXTS)).values
    assert np.corrcoef(found.values.ravel(), exact.ravel())[0, 1] > 0.99
    assert [p.requires_grad for p in low.module.parameters()] == flags
    assert all(p.grad is None for p in low.module.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in low.module.modules())


def test_inside_inference_mode(tiny_dense):
    dense = tiny_dense("llama")
    objective = objective_on(dense, NllConfig(), TEXTS)
    with torch.inference_mode():
        found = gate_gradients(dense, objective).values
    assert found == pytest.approx(gate_gradients(dense, objective).values)


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt2", "opt", "bloom", "cohere"])
def test_sublayers_equal_finite_differences(double, family):
    dense = double(family)
    objective = objective_on(dense, NllConfig(), TEXTS)
    found = gate_gradients(dense, objective, form="sublayers")
    assert found.form == "sublayers"
    assert found.values.shape == (3, 12)
    step = 1e-5 if family == "opt" else STEP
    slopes = expected(dense, objective, updates_of(dense, "sublayers"), step)
    assert found.values == pytest.approx(slopes, **CLOSE)


@pytest.mark.parametrize("family", ["granitemoehybrid", "qwen3_moe"])
def test_sublayers_with_routers_equal_plain_autograd(tiny_dense, family):
    """Routers jump, so that differences over a step say nothing."""
    dense = tiny_dense(family)
    objective = objective_on(dense, NllConfig(), TEXTS)
    found = gate_gradients(dense, objective, form="sublayers").values
    pairs = updates_of(dense, "sublayers")
    for i in range(len(pairs)):
        alpha = torch.ones((), requires_grad=True)
        hooks = gated(dense, i, alpha, pairs)
        slopes = [
            float(torch.autograd.grad(loss_of(objective, dense, e), alpha)[0]) for e in range(3)
        ]
        for hook in hooks:
            hook.remove()
        assert found[:, i] == pytest.approx(slopes, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_sublayers_of_a_block_add_up_to_its_gate(tiny_dense, family):
    dense = tiny_dense(family)
    objective = objective_on(dense, NllConfig(), TEXTS)
    apart = gate_gradients(dense, objective, form="sublayers").values
    together = gate_gradients(dense, objective, form="updates").values
    scale = np.abs(apart).max()
    assert apart.reshape(3, -1, 2).sum(2) == pytest.approx(together, abs=2e-6 * scale)


@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_updates_are_all_that_is_added_and_nothing_else_reads_them(tiny_dense, family):
    """h + a + m is what leaves the block to the last bit, also once a and m are halved."""
    dense = tiny_dense(family)
    tokens = objective_on(dense, NllConfig(), TEXTS).batches[0].tokens
    pairs = updates_of(dense, "sublayers")
    for factor in (1.0, 0.5):
        seen, ends, hooks = {}, [], []

        def scale(module, args, kwargs, output, factor=factor, seen=seen):
            update = hidden_of(output) * factor
            seen[module] = update.clone()
            return with_hidden(output, update)

        def enter(module, args, kwargs, ends=ends):
            ends.append(input_of(args, kwargs).clone())

        def leave(module, args, output, ends=ends):
            ends.append(hidden_of(output).clone())

        for block in dense.blocks.layers:
            hooks.append(block.register_forward_pre_hook(enter, with_kwargs=True))
            hooks.append(block.register_forward_hook(leave))
        for module in {m for updates in pairs for m in updates}:
            hooks.append(module.register_forward_hook(scale, with_kwargs=True))
        with torch.inference_mode():
            dense.module.base_model(**tokens.forward_arguments(dense.dtype))
        for hook in hooks:
            hook.remove()
        for i in range(dense.depth):
            h, out = ends[2 * i], ends[2 * i + 1]
            a, m = (sum(seen[x].view(h.shape) for x in pairs[2 * i + j]) for j in (0, 1))
            if family in SCALED:
                constant = dense.config.residual_multiplier
                assert torch.allclose(h + constant * a + constant * m, out, atol=1e-5)
            else:
                assert torch.equal(h + a + m, out) or torch.equal(h + (a + m), out)


def test_refusals(tiny_dense):
    dense = tiny_dense("bloom")
    with pytest.raises(UsageError, match="margin, likelihood or nll"):
        gate_gradients(dense, objective_on(dense, AccuracyConfig(), ITEMS, pack_choices=False))
    objective = objective_on(dense, NllConfig(), TEXTS)
    with pytest.raises(UsageError, match="zero there"):
        gate_gradients(dense, objective_on(dense, KlConfig(), TEXTS))
    broken = DenseModel(copy.deepcopy(dense.module), dense.tokenizer, dense.source)
    with torch.no_grad():
        next(iter(broken.blocks.layers[2].parameters())).fill_(torch.nan)
    with pytest.raises(NotFiniteError, match="3 of 3"):
        gate_gradients(broken, objective)


def test_where_branches_cannot_be_told_gates_act_on_blocks(tiny_dense, monkeypatch):
    dense = tiny_dense("llama")
    objective = objective_on(dense, NllConfig(), TEXTS)
    blocks = gate_gradients(dense, objective, form="block")
    other = DenseModel(dense.module, dense.tokenizer, dense.source)

    def fail(dense):
        raise UnsupportedModelError("block 0 has a third branch")

    monkeypatch.setattr("shoal.models.sublayers.discover", fail)
    found = gate_gradients(other, objective)
    assert found.form == "block"
    assert np.array_equal(found.values, blocks.values)
    with pytest.raises(UsageError, match=r"third branch.*form block"):
        gate_gradients(other, objective, form="updates")
    with pytest.raises(UnsupportedModelError, match="third branch"):
        gate_gradients(other, objective, form="sublayers")


def test_blocks_that_share_a_module_are_gated_whole(tiny_dense):
    """The shared module would run through the gates of both blocks each time."""
    dense = DenseModel(
        copy.deepcopy(tiny_dense("llama").module), tiny_dense("llama").tokenizer,
        tiny_dense("llama").source,
    )  # fmt: skip
    layers = dense.blocks.layers
    layers[3].mlp = layers[2].mlp
    objective = objective_on(dense, NllConfig(), TEXTS)
    found = gate_gradients(dense, objective)
    assert found.form == "block"
    assert found.values == pytest.approx(expected(dense, objective, None, 0.05), rel=0.05, abs=0.02)
    with pytest.raises(UnsupportedModelError, match="share a module"):
        gate_gradients(dense, objective, form="sublayers")
