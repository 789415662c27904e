"""Scores of runs of sub-layers against states found by other roads, and weights by their names."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from shoal.config.objectives import NllConfig
from shoal.core.mask import Part, Site
from shoal.data import Corpus, Tokenisation
from shoal.models.dense import DenseModel
from shoal.models.hidden import hidden_of, input_of
from shoal.models.replay import Replay
from shoal.objectives.build import build_objective
from shoal.objectives.scores.states import state_runs, state_windows
from shoal.objectives.scores.table import STATES
from shoal.objectives.scores.weights import block_groups, magnitude, sublayer_groups, taylor

FAMILIES = ["llama", "gemma2", "gpt2", "opt", "bloom", "cohere", "granitemoehybrid", "qwen3_moe"]
PARALLEL = {"cohere", "falcon"}
LINES = ["a short one", "this is the second document , a bit longer .", "and a third , in between"]
TEXTS = Corpus.of("lambada", "train", LINES, "here")

# What is called with the state between attention and MLP, and with nothing else.
BEFORE_MLP = {
    "llama": "post_attention_layernorm",
    "gemma2": "pre_feedforward_layernorm",
    "gpt2": "ln_2",
    "opt": "final_layer_norm",
    "bloom": "post_attention_layernorm",
    "granitemoehybrid": "post_attention_layernorm",
    "qwen3_moe": "post_attention_layernorm",
}
# The names of the attention's own weights, and of those that it shares with the MLP.
ATTENTION = {
    "llama": ("self_attn", "input_layernorm"),
    "gemma2": ("self_attn", "input_layernorm", "post_attention_layernorm"),
    "gpt2": ("attn", "ln_1"),
    "opt": ("self_attn", "self_attn_layer_norm"),
    "bloom": ("self_attention", "input_layernorm"),
    "cohere": ("self_attn",),
    "granitemoehybrid": ("self_attn", "mamba", "input_layernorm"),
    "qwen3_moe": ("self_attn", "input_layernorm"),
}
SHARED = {"cohere": ("input_layernorm",)}


def objective_on(dense, **options):
    options = {"batch_tokens": 160, "length": 64, **options}
    return build_objective(NllConfig(), TEXTS, dense, tokenisation=Tokenisation(), **options)


def copy_of(dense):
    return DenseModel(copy.deepcopy(dense.module), dense.tokenizer, dense.source)


def values(name, x, y):
    """A score of each position, from the states [P, d] at both ends."""
    size = np.linalg.norm
    cosine = ((x * y).sum(-1) / (size(x, axis=-1) * size(y, axis=-1))).clip(-1, 1)
    return {
        "block_influence": 1 - cosine,
        "angular": np.arccos(cosine) / np.pi,
        "relative_magnitude": size(y - x, axis=-1) / size(y, axis=-1),
        "norm_ratio": size(y, axis=-1) / size(x, axis=-1),
    }[name]


def check(found, texts):
    """Compare with the ends of every run in every text, each [T, d]."""
    for name, runs in found.items():
        for (row, start), value in np.ndenumerate(runs):
            span = (start, start + row + 1)
            if any(span not in ends for ends in texts):
                assert np.isnan(value), span
                continue
            pairs = [ends[span] for ends in texts]
            if name == "angular":
                pairs = [(x[-1:], y[-1:]) for x, y in pairs]
            expected = np.concatenate([values(name, x, y) for x, y in pairs]).mean()
            assert value == pytest.approx(expected, abs=2e-6), (name, span)


def texts_of(dense):
    """One micro-batch per text, so that there is no padding."""
    return [b.tokens for b in objective_on(dense, batch_tokens=1).batches]


def array(hidden):
    return hidden[0].double().numpy()


def by_replay(dense, tokens, longest):
    """The ends of every run, by running branches one after another."""
    replay = Replay(dense)
    captured = replay.capture(tokens)
    ends = {}
    with torch.inference_mode():
        row, hidden, parallel = [array(captured.entry)], captured.entry, False
        for i, block in enumerate(dense.branches):
            attn = replay.run(Site(i, Part.ATTN), hidden.clone(), captured)
            if block.sequential:
                out = replay.run(Site(i, Part.MLP), attn.clone(), captured)
            else:
                parallel = True
                mlp = replay.run(Site(i, Part.MLP), hidden.clone(), captured)
                out = replay.run(Site(i), hidden.clone(), captured)
                ends[2 * i, 2 * i + 1] = array(hidden), array(attn)
                ends[2 * i + 1, 2 * i + 2] = array(hidden), array(mlp)
            row += [array(attn), array(out)]
            hidden = out
    for n in range(1, longest + 1):
        for start in range(len(row) - n):
            if not parallel or (start % 2 == 0 and n % 2 == 0):
                ends[start, start + n] = row[start], row[start + n]
    return ends


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("longest", [2, 5])
def test_states_are_those_of_running_branches_one_by_one(tiny_dense, family, longest):
    dense = tiny_dense(family)
    assert dense.branches[0].sequential == (family not in PARALLEL)
    found = state_runs(dense, objective_on(dense), STATES, longest)
    assert {runs.shape for runs in found.values()} == {(longest, 12)}
    check(found, [by_replay(dense, t, longest) for t in texts_of(dense)])


@pytest.mark.parametrize("family", BEFORE_MLP)
def test_states_are_those_that_the_model_hands_around(tiny_dense, family):
    """No branch finder and no replay: what the norm before the MLP is called with."""
    dense = tiny_dense(family)
    texts = []
    for tokens in texts_of(dense):
        row, hooks = [], []

        def note(module, args, kwargs, row=row):
            # Some norms get their positions in one row.
            row.append(array(input_of(args, kwargs).clone().view(1, -1, 32)))

        def leave(module, args, output, row=row):
            row.append(array(hidden_of(output)))

        for block in dense.blocks.layers:
            before = block.get_submodule(BEFORE_MLP[family])
            hooks += [m.register_forward_pre_hook(note, with_kwargs=True) for m in (block, before)]
        hooks.append(dense.blocks.layers[-1].register_forward_hook(leave))
        with torch.inference_mode():
            dense.module(**tokens.forward_arguments(dense.dtype))
        for hook in hooks:
            hook.remove()
        assert len(row) == 13
        texts.append({(s, s + n): (row[s], row[s + n]) for n in (1, 2) for s in range(13 - n)})
    check(state_runs(dense, objective_on(dense), STATES), texts)


@pytest.mark.parametrize("family", PARALLEL)
def test_parallel_branches_both_start_from_the_input(tiny_dense, family):
    dense = tiny_dense(family)
    texts = []
    for tokens in texts_of(dense):
        ends, hooks, entry = {}, [], []

        def enter(module, args, kwargs, entry=entry):
            entry[:] = [input_of(args, kwargs).clone()]

        for i, block in enumerate(dense.blocks.layers):
            hooks.append(block.register_forward_pre_hook(enter, with_kwargs=True))
            for place, part in ((2 * i, "attn"), (2 * i + 1, "mlp")):
                module = next(
                    m for n, m in block.named_children() if n in (part, f"self_{part}")
                    or (part == "attn" and n == "self_attention")
                )  # fmt: skip

                def after(module, args, output, place=place, ends=ends, entry=entry):
                    h = entry[0]
                    ends[place, place + 1] = array(h), array(h + hidden_of(output))

                hooks.append(module.register_forward_hook(after))
        with torch.inference_mode():
            dense.module(**tokens.forward_arguments(dense.dtype))
        for hook in hooks:
            hook.remove()
        texts.append(ends)
    found = state_runs(dense, objective_on(dense), STATES, 1)
    assert not any(np.isnan(runs).any() for runs in found.values())
    check(found, texts)


@pytest.mark.parametrize("family", [*FAMILIES, "falcon", "mixtral", "lfm2"])
def test_whole_blocks_score_the_same_bits_as_windows(tiny_dense, family):
    dense = tiny_dense(family)
    objective = objective_on(dense)
    windows = state_windows(dense, objective, STATES, 2)
    runs = state_runs(dense, objective, STATES, 4)
    for name in STATES:
        assert np.array_equal(runs[name][1, ::2], windows[name][0])
        assert np.array_equal(runs[name][3, ::2], windows[name][1], equal_nan=True)


def test_looking_leaves_no_trace(tiny_dense):
    dense = copy_of(tiny_dense("bloom"))
    objective = objective_on(dense)
    children = [list(b.named_modules()) for b in dense.blocks.layers]
    tokens = objective.batches[0].tokens.forward_arguments(dense.dtype)
    with torch.inference_mode():
        before = dense.module(**tokens).logits
        state_runs(dense, objective, STATES)
        assert torch.equal(dense.module(**tokens).logits, before)
    assert [list(b.named_modules()) for b in dense.blocks.layers] == children
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in dense.module.modules())


def test_a_silent_attention_scores_nothing_and_its_half_step_as_the_mlp(tiny_dense):
    dense = copy_of(tiny_dense("llama"))
    assert dense.branches[3].paired
    with torch.no_grad():
        dense.blocks.layers[3].self_attn.o_proj.weight.zero_()
    found = state_runs(dense, objective_on(dense), STATES)["block_influence"]
    assert found[0, 6] == pytest.approx(0, abs=1e-12)
    assert found[1, 5] == found[0, 5]
    assert (np.delete(found[0], 6) > 1e-4).all()


def sums_by_name(dense, family, value):
    """Sums over the weights of attention 0, MLP 0, attention 1, ... by the names of modules."""
    expected = np.zeros(2 * dense.depth)
    for i, block in enumerate(dense.blocks.layers):
        for name, weight in block.named_parameters():
            owner = name.split(".")[0]
            if owner not in SHARED.get(family, ()):
                expected[2 * i + (owner not in ATTENTION[family])] += value(weight)
    return expected


@pytest.mark.parametrize("family", FAMILIES)
def test_magnitude_counts_each_weight_where_it_serves(tiny_dense, family):
    dense = tiny_dense(family)
    parts = magnitude(dense, sublayer_groups(dense))
    expected = sums_by_name(dense, family, lambda w: np.abs(w.detach().double().numpy()).sum())
    assert parts == pytest.approx(expected, rel=1e-6)
    assert (expected > 0).all()
    shared = [
        sum(
            float(w.detach().double().abs().sum())
            for n, w in b.named_parameters()
            if n.split(".")[0] in SHARED.get(family, ())
        )
        for b in dense.blocks.layers
    ]
    assert parts.reshape(-1, 2).sum(1) + shared == pytest.approx(magnitude(dense), rel=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_taylor_counts_each_weight_where_it_serves(tiny_dense, family):
    # Grouped experts know no float64.
    dense = copy_of(tiny_dense(family))
    objective = objective_on(dense)
    groups = [*block_groups(dense), *sublayer_groups(dense)]
    found = taylor(dense, objective, groups)
    assert np.array_equal(found[: dense.depth], taylor(dense, objective))
    total = count = 0
    for batch in objective.batches:
        tokens = batch.tokens
        logits = dense.module(**tokens.forward_arguments(dense.dtype)).logits
        table = logits.reshape(-1, logits.shape[-1])[tokens.rows].log_softmax(-1)
        total = total - table[tokens.pick, tokens.targets].sum()
        count += len(tokens.pick)
    (total / count).backward()

    def value(weight: nn.Parameter) -> float:
        return 0.0 if weight.grad is None else float((weight.detach() * weight.grad).abs().sum())

    expected = sums_by_name(dense, family, value)
    assert found[dense.depth :] == pytest.approx(expected, rel=1e-3)
