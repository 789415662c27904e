"""Free runs against slow readings of the same texts, controls, collapse, EOS, resuming."""

import copy

import numpy as np
import pytest
import torch

from shoal.core.mask import Mask
from shoal.diagnosis.freerun.pairs import first_difference, flip_rate, read_pair
from shoal.diagnosis.freerun.runs import (
    OTHER_SEED,
    Desk,
    FreeSettings,
)
from shoal.diagnosis.freerun.writing import Writing, written
from shoal.diagnosis.passages import Passage, compare_along, passage_batches
from shoal.diagnosis.records import FreeRuns
from shoal.diagnosis.sides import changed, checkpoint_side, dense_side, masked_side
from shoal.diagnosis.spaces import Look, Rows, compare
from shoal.models.dense import DenseModel
from shoal.models.load import load_dense
from shoal.objectives.decoding import end_tokens
from shoal.testing.tiny import tiny_model, tiny_tokenizer

PROMPTS = tuple(
    tuple(np.random.default_rng(7 + i).integers(3, 128, 2 + 3 * (i % 4)).tolist()) for i in range(6)
)
LOOK = Look(1.0, (5, 6, 7, 8))
MASK = Mask.of(6, [2, 3])
BATCH = passage_batches([Passage((5, 6, 7), (8, 9))], 64)[0].tokens


def write(side, writing, prompts=PROMPTS):
    return written(side, prompts, writing, batch_tokens=64, kept={}, padded=False)


def desk(dense, prompts=PROMPTS, settings=None, look=LOOK, **more):
    settings = settings or FreeSettings(6, (0,))
    more = {"batch_tokens": 64, "kept": {}, "padded": False} | more
    return Desk(dense, prompts, settings, look, **more)


def free(dense, other, *what, rounded=None, **more):
    here = desk(dense, *what, **more)
    return FreeRuns(runs=here.own(other) + here.controls(rounded), examples=here.examples(other))


def slow_rows(side, prompt, text):
    """Logits of every step of one text, by the module's own forward."""
    with torch.inference_mode():
        z = side.model.module(torch.tensor([[*prompt, *text]]), use_cache=False).logits[0]
    return Rows(None, full=z[len(prompt) - 1 : -1])


@pytest.fixture
def own():
    """A dense side whose model a test may change."""
    return dense_side(load_dense(tiny_model("llama"), tokenizer=tiny_tokenizer()), BATCH)


@pytest.fixture
def llama(tiny_dense):
    return dense_side(tiny_dense("llama"), BATCH)


@pytest.mark.parametrize(
    ("mine", "theirs", "first", "flips"),
    [
        ((1, 2, 3), (1, 2, 3), 4, 0.0),
        ((1, 2, 3), (4, 2, 3), 1, 1 / 3),
        ((1, 2, 0), (1, 2, 3, 4, 5), 3, 3 / 5),
        ((1, 2), (1, 2, 3, 3), 3, 1 / 2),
        ((0,), (0,), 2, 0.0),
    ],
)
def test_where_texts_part(mine, theirs, first, flips):
    assert first_difference(mine, theirs) == first_difference(theirs, mine) == first
    assert flip_rate(mine, theirs) == pytest.approx(flips)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2", "lfm2", "deepseek_v3"])
def test_each_model_is_read_along_its_own_text(family, tiny_dense):
    dense = dense_side(tiny_dense(family), BATCH)
    other = masked_side(dense, MASK)
    writing = Writing(6, 1.0, 0, (2, 9, 40, 41, 42))
    mine, theirs = write(dense, writing), write(other, writing)
    pair = read_pair(dense, other, PROMPTS, mine, theirs, LOOK, new_tokens=6, batch_tokens=40)
    for i, prompt in enumerate(PROMPTS):
        ours = slow_rows(dense, prompt, mine[i])
        others = slow_rows(other, prompt, theirs[i])
        steps = min(len(mine[i]), len(theirs[i]))
        some = torch.arange(steps)
        expected = compare(ours.at(some), others.at(some), LOOK)
        for name in ("kl", "logit_gap", "total_variation", "subspace_kl", "flip"):
            found = pair.quantities[name][i]
            np.testing.assert_allclose(found[:steps], expected[name], rtol=2e-3, atol=1e-6)
            assert np.isnan(found[steps:]).all()
        along = slow_rows(dense, prompt, theirs[i])
        for rows, text, table in (
            (ours, mine[i], pair.mine_nll),
            (along, theirs[i], pair.theirs_nll),
        ):
            z = rows.full.double().log_softmax(-1)
            nll = -z[torch.arange(len(text)), torch.tensor(text)]
            np.testing.assert_allclose(table[i, : len(text)], nll, rtol=1e-3, atol=1e-5)
            assert np.isnan(table[i, len(text) :]).all()


def test_up_to_the_first_different_token_it_is_the_teacher_forced_comparison(llama):
    other = masked_side(llama, MASK)
    mine, theirs = (write(side, Writing(10, 0.3, 1)) for side in (llama, other))
    pair = read_pair(llama, other, PROMPTS, mine, theirs, LOOK, new_tokens=10, batch_tokens=64)
    passages = [Passage(p, t) for p, t in zip(PROMPTS, mine, strict=True)]
    forced = compare_along(llama, other, passages, LOOK, batch_tokens=64)
    assert (pair.first > 1).any()
    for name, table in pair.quantities.items():
        before = pair.part(table, after=False)
        expected = pair.part(forced.quantities[name], after=False)
        np.testing.assert_allclose(before, expected, rtol=1e-4, atol=1e-6, err_msg=name)


def test_the_micro_batches_change_nothing(llama):
    other = masked_side(llama, MASK)
    mine, theirs = (write(side, Writing(10, 0.3, 1)) for side in (llama, other))
    # One prompt with one text, so that some are read once.
    theirs[2] = mine[2]
    small, large = (
        read_pair(
            llama, other, PROMPTS, mine, theirs, LOOK, new_tokens=10, batch_tokens=batch_tokens
        )
        for batch_tokens in (1, 10_000)
    )
    for name, table in large.quantities.items():
        np.testing.assert_allclose(small.quantities[name], table, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(small.mine_nll, large.mine_nll, rtol=1e-4)
    np.testing.assert_allclose(small.theirs_nll, large.theirs_nll, rtol=1e-4)
    np.testing.assert_array_equal(large.mine_nll[2], large.theirs_nll[2])


def test_a_model_against_itself_never_parts(llama):
    found = free(llama, masked_side(llama, Mask.dense(6)), settings=FreeSettings(6, (0, 1)))
    greedy, sampled, control = found.runs
    for run in (greedy, sampled):
        assert (run.name, run.control) == ("pruned", False)
        assert run.first_divergence.value == run.dense_text.length.value + 1
        assert run.flip_rate.value == 0
        assert set(run.diverged.value) == {0.0}
        assert not run.after
        for name in ("hidden_gap", "logit_gap", "probability_gap", "kl", "total_variation", "flip"):
            assert run.before[name].value == 0
            assert set(run.steps[name].value) == {0.0}
        assert run.dense_text == run.other_text
    assert (greedy.decoding, greedy.seeds) == ("greedy", ())
    assert (sampled.decoding, sampled.seeds) == ("sampled", (0, 1))
    assert (control.name, control.control, control.seeds) == (OTHER_SEED, True, (0,))
    assert control.flip_rate.value > 0.3
    assert control.before["kl"].value == pytest.approx(0, abs=1e-9)
    assert control.after["kl"].value > 0
    assert [e.first_divergence for e in found.examples] == [None] * 4


def test_seeds_are_averaged_within_a_prompt(llama):
    other = masked_side(llama, MASK)
    both, *single = (
        free(llama, other, settings=FreeSettings(6, seeds)).runs[1]
        for seeds in ((0, 3), (0,), (3,))
    )
    for read in (
        lambda run: run.first_divergence,
        lambda run: run.flip_rate,
        lambda run: run.before["kl"],
        lambda run: run.other_text.distinct_2,
        lambda run: run.other_text.surprise,
    ):
        assert read(both).value == pytest.approx(np.mean([read(run).value for run in single]))
        assert read(both).count == len(PROMPTS)
    means = [np.mean(pair) for pair in zip(*(run.diverged.value for run in single), strict=True)]
    assert both.diverged.value == pytest.approx(means)
    assert both.diverged.steps == (1, 2, 3, 4, 5, 6)


def test_coupled_samples_differ_as_often_as_their_distributions_allow(llama):
    rng = np.random.default_rng(0)
    prompts = [tuple(rng.integers(3, 128, 4).tolist()) for _ in range(400)]
    other = masked_side(llama, Mask.of(6, [3]))
    common = {"batch_tokens": 4000, "kept": {}, "padded": False}
    run = desk(llama, prompts, FreeSettings(1, (0,)), Look(1.0), **common).own(other)[1]
    distance = run.before["total_variation"].value
    # 2 d / (1 + d) is concave, so at the mean it is no less than on average.
    low, high = distance, 2 * distance / (1 + distance)
    error = 3 * np.sqrt(0.25 / len(prompts))
    assert 0.05 < distance < 0.9
    assert low - error < run.flip_rate.value < high + error


def test_another_precision_and_the_examples_stand_beside(llama):
    model = DenseModel(
        copy.deepcopy(llama.model.module).to(torch.bfloat16),
        llama.model.tokenizer,
        changed(llama.model.source, "bfloat16"),
    )
    rounded = checkpoint_side(model, BATCH, "bfloat16 copy")
    other = masked_side(llama, MASK)
    settings = FreeSettings(6, (0, 1), examples=2)
    found = free(llama, other, settings=settings, rounded=rounded)
    assert [(r.name, r.control, r.decoding, r.seeds) for r in found.runs] == [
        ("pruned", False, "greedy", ()),
        ("pruned", False, "sampled", (0, 1)),
        (OTHER_SEED, True, "sampled", (0,)),
        ("bfloat16 copy", True, "greedy", ()),
        ("bfloat16 copy", True, "sampled", (0,)),
    ]
    pruned, copied = found.runs[1], found.runs[4]
    assert 0 < copied.before["kl"].value < 0.1 * pruned.before["kl"].value
    assert copied.first_divergence.value > pruned.first_divergence.value
    decode = llama.model.tokenizer.decode
    texts = [write(side, Writing(6, stops=end_tokens(llama.model))) for side in (llama, other)]
    assert len(found.examples) == 2
    for example, prompt, mine, theirs in zip(found.examples, PROMPTS, *texts, strict=False):
        assert example.prompt == decode(prompt)
        assert example.dense == decode(mine, skip_special_tokens=True)
        assert example.other == decode(theirs, skip_special_tokens=True)
        assert example.first_divergence == first_difference(mine, theirs)


def test_runs_and_controls_may_be_asked_for_alone_and_tell_their_progress(llama):
    other, third = masked_side(llama, MASK), masked_side(llama, Mask.of(6, [4]), "third")
    settings = FreeSettings(6, (0, 1))
    kept = {}
    common = {"batch_tokens": 64, "kept": kept, "padded": False}
    what = (PROMPTS, settings, LOOK)
    told = [], [], []
    own = desk(llama, *what, on_step=told[0].append, **common).own(other)
    controls = desk(llama, *what, on_step=told[1].append, **common).controls(third)
    examples = desk(llama, *what, **common).examples(other)
    # All is kept by now, and no less is told.
    whole = free(llama, other, *what[:-1], rounded=third, kept=kept, on_step=told[2].append)
    assert (whole.runs, whole.examples) == (own + controls, examples)
    assert [run.name for run in controls] == [OTHER_SEED, "third", "third"]
    expected = [settings.own_positions(6), settings.control_positions(6)]
    assert list(map(sum, told[:2])) == expected
    assert sum(told[2]) == sum(expected)
    without = []
    desk(llama, *what, on_step=without.append, **common).controls(None)
    assert sum(without) == settings.control_positions(6, rounded=False)


def test_a_model_that_collapsed_is_told_from_one_that_parted(own):
    module = copy.deepcopy(own.model.module)
    with torch.no_grad():
        # All logits are equal, so that the first token is written for ever.
        module.lm_head.weight = torch.nn.Parameter(torch.zeros_like(module.lm_head.weight))
    model = DenseModel(module, own.model.tokenizer, changed(own.model.source, "broken"))
    greedy, _, control = free(
        own, checkpoint_side(model, BATCH), settings=FreeSettings(16, (0,))
    ).runs
    text = greedy.other_text
    assert (text.looping.value, text.ended.value, text.length.value) == (1, 0, 16)
    assert (text.distinct_1.value, text.longest_repeat.value) == (1 / 16, 15 / 16)
    assert text.surprise.value > greedy.dense_text.surprise.value + 1
    for text in (control.dense_text, control.other_text):
        assert text.looping.value == 0
        assert text.distinct_1.value > 0.5
    assert control.other_text.surprise.value == pytest.approx(
        control.dense_text.surprise.value, abs=0.5
    )


def test_the_dense_models_eos_ends_both_texts(own):
    whole = write(own, Writing(8))
    own.model.module.generation_config.eos_token_id = whole[0][2]
    stops = end_tokens(own.model)
    other = masked_side(own, MASK)
    other.model.module.generation_config.eos_token_id = 3
    run = free(own, other, settings=FreeSettings(8, (0,))).runs[0]
    for side, text in ((own, run.dense_text), (other, run.other_text)):
        texts = write(side, Writing(8, stops=stops))
        ended = np.mean([t[-1] in stops for t in texts])
        assert text.ended.value == ended
        assert text.length.value == np.mean([len(t) for t in texts])
    assert run.dense_text.ended.value > 0
    assert run.dense_text.length.value < 8


def test_a_killed_run_goes_on_and_a_finished_one_writes_nothing(llama, monkeypatch):
    other = masked_side(llama, MASK)
    expected = free(llama, other)
    kept = {}
    generate = other.model.module.generate
    calls = []

    def killed(*args, **kwargs):
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return generate(*args, **kwargs)

    monkeypatch.setattr(other.model.module, "generate", killed)
    with pytest.raises(KeyboardInterrupt):
        free(llama, other, kept=kept)
    assert free(llama, other, kept=kept) == expected
    for side in (llama, other):
        monkeypatch.setattr(side.model.module, "generate", None)
    assert free(llama, other, kept=kept) == expected


def test_parts_of_blocks_may_be_missing(llama):
    other = masked_side(llama, Mask.parse("-[2.attn,4.mlp,5.mlp]", 6))
    greedy, sampled, _ = free(llama, other).runs
    for run in (greedy, sampled):
        assert run.before["kl"].value > 0
        assert run.flip_rate.value > 0


def test_a_recurrent_model_that_cannot_be_padded(tiny_dense):
    dense = dense_side(tiny_dense("recurrent_gemma"), BATCH)
    greedy, sampled, _ = free(dense, masked_side(dense, MASK)).runs
    for run in (greedy, sampled):
        assert run.before["kl"].value > 0
        assert run.dense_text.length.value == 6


def test_a_model_without_a_tokenizer_has_no_examples():
    dense = dense_side(load_dense(tiny_model("llama")), BATCH)
    assert free(dense, masked_side(dense, MASK), settings=FreeSettings(2, (0,))).examples == ()
