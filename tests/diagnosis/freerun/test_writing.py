"""Texts against a token loop without cache; the shared noise; EOS; what is kept; refusals."""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from shoal.core.errors import NotFiniteError, UnsupportedModelError, UsageError
from shoal.core.mask import Mask
from shoal.diagnosis.freerun.writing import Writing, gumbel, written
from shoal.diagnosis.passages import Passage, passage_batches
from shoal.diagnosis.sides import dense_side, masked_side
from shoal.models.load import load_dense
from shoal.objectives.continuations import continue_greedily
from shoal.objectives.decoding import end_tokens
from shoal.testing.tiny import tiny_model, tiny_tokenizer

FAMILIES = ["llama", "gpt2", "gemma2", "lfm2", "mixtral"]
PROMPTS = tuple(
    tuple(np.random.default_rng(7 + i).integers(3, 128, 2 + 3 * (i % 4)).tolist()) for i in range(7)
)


def side_of(model):
    batch = passage_batches([Passage((5, 6, 7), (8, 9))], 64)[0].tokens
    return dense_side(model, batch)


def write(side, writing, prompts=PROMPTS, *, batch_tokens=64, padded=True, kept=None, **more):
    kept = {} if kept is None else kept
    return written(
        side, prompts, writing, batch_tokens=batch_tokens, kept=kept, padded=padded, **more
    )


def slow(module, prompt, index, writing):
    """One token after another, everything run again for each."""
    text = []
    while len(text) < writing.new_tokens and not set(text) & set(writing.stops):
        with torch.inference_mode():
            z = module(torch.tensor([[*prompt, *text]]), use_cache=False).logits[0, -1]
        if writing.seed is not None:
            noise = gumbel(writing.seed, index, len(text), len(z))
            z = z / writing.temperature + torch.from_numpy(noise)
        text.append(int(z.argmax()))
    return tuple(text)


@pytest.fixture
def own():
    """A side whose model a test may change."""
    return side_of(load_dense(tiny_model("llama"), tokenizer=tiny_tokenizer()))


@pytest.fixture
def llama(tiny_dense):
    return side_of(tiny_dense("llama"))


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_texts_are_the_models_own_continuations(family, tiny_dense):
    side = side_of(tiny_dense(family))
    expected = continue_greedily(side.model, PROMPTS, 9, 64)
    found = write(side, Writing(9, stops=end_tokens(side.model)))
    assert found == [tuple(text) for text in expected]


@pytest.mark.parametrize("family", FAMILIES)
def test_samples_are_those_of_a_slow_loop(family, tiny_dense):
    dense = side_of(tiny_dense(family))
    writing = Writing(6, 1.5, 3, (2, 40, 50))
    for side in (dense, masked_side(dense, Mask.of(6, [2, 3]))):
        expected = [slow(side.model.module, p, i, writing) for i, p in enumerate(PROMPTS[:4])]
        assert write(side, writing, PROMPTS[:4]) == expected


@pytest.mark.parametrize("kind", ["recurrent_gemma", "jamba"])
def test_recurrent_models_write_in_groups_of_equal_length(kind, tiny_dense):
    side = side_of(tiny_dense(kind))
    writing = Writing(6, 1.0, 3, end_tokens(side.model))
    expected = [slow(side.model.module, p, i, writing) for i, p in enumerate(PROMPTS)]
    assert write(side, writing, padded=False) == expected


def test_the_batch_changes_no_sample(llama):
    writing = Writing(12, 1.0, 0)
    expected = write(llama, writing, batch_tokens=1, padded=False)
    for batch_tokens, padded in ((1000, True), (60, True), (1000, False)):
        assert write(llama, writing, batch_tokens=batch_tokens, padded=padded) == expected
    assert write(llama, writing, PROMPTS[:3]) == expected[:3]


def test_noise_is_another_for_each_seed_prompt_and_step_and_for_nothing_else():
    cases = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (2**40, 3, 4)]
    drawn = [gumbel(*case, 500) for case in cases]
    for case, noise in zip(cases, drawn, strict=True):
        assert np.isfinite(noise).all()
        np.testing.assert_array_equal(noise, gumbel(*case, 500))
    correlation = np.corrcoef(drawn) - np.eye(len(cases))
    assert np.abs(correlation).max() < 0.2


def test_same_prompts_in_other_places_and_other_seeds_are_other_texts(llama):
    texts = write(llama, Writing(8, 1.0, 0), [PROMPTS[1]] * 6)
    texts += write(llama, Writing(8, 1.0, 1), [PROMPTS[1]] * 6)
    assert len(set(texts)) == 12


@pytest.mark.parametrize("temperature", [0.7, 2.0])
def test_samples_follow_the_distribution(llama, temperature):
    count = 3000
    prompt = PROMPTS[2]
    texts = write(llama, Writing(1, temperature, 5), [prompt] * count, batch_tokens=10_000)
    with torch.inference_mode():
        z = llama.model.module(torch.tensor([prompt])).logits[0, -1].double()
    expected = count * (z / temperature).softmax(-1).numpy()
    found = np.bincount([text[0] for text in texts], minlength=len(z))
    # Rare tokens are counted together.
    order = np.argsort(-expected)
    often = max(1, int((expected >= 5).sum()) - 1)
    pooled = [np.append(x[order][:often], x[order][often:].sum()) for x in (found, expected)]
    assert len(pooled[0]) > 5
    assert chisquare(*pooled).pvalue > 0.01


def test_the_chance_of_different_tokens_is_that_of_the_coupling():
    rng = np.random.default_rng(0)
    z = rng.normal(0, 1.5, 20)
    y = z + rng.normal(0, 1.0, 20)
    p, q = (np.exp(x) / np.exp(x).sum() for x in (z, y))
    # Equal tokens i need G_i to win both races: the exact chance of the Gumbel-max coupling.
    equal = sum(1 / np.maximum(p / p[i], q / q[i]).sum() for i in range(20))
    distance = np.abs(p - q).sum() / 2
    assert distance <= 1 - equal <= 2 * distance / (1 + distance)
    draws = [gumbel(0, i, j, 20) for i in range(400) for j in range(20)]
    differs = np.mean([(z + g).argmax() != (y + g).argmax() for g in draws])
    assert differs == pytest.approx(1 - equal, abs=4 * np.sqrt(equal * (1 - equal) / len(draws)))


def test_a_text_ends_with_its_first_stop(llama):
    for seed in (None, 0):
        whole = write(llama, Writing(12, 1.0, seed))
        assert {len(text) for text in whole} == {12}
        stops = (whole[0][4], whole[1][0])
        cut = write(llama, Writing(12, 1.0, seed, stops))
        ends = [next((i for i, t in enumerate(text) if t in stops), 11) + 1 for text in whole]
        assert cut == [text[:end] for text, end in zip(whole, ends, strict=True)]
        assert len(cut[1]) == 1


def test_own_generation_settings_do_not_matter(own):
    expected = write(own, Writing(8))
    own.model.module.generation_config.repetition_penalty = 5.0
    own.model.module.generation_config.eos_token_id = expected[0][0]
    assert write(own, Writing(8)) == expected


def test_what_is_kept_is_not_written_again(llama, monkeypatch):
    kept = {}
    writing = Writing(8, 1.0, 0)
    generate = llama.model.module.generate
    calls = []

    def killed(*args, **kwargs):
        calls.append(len(args[0]))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return generate(*args, **kwargs)

    monkeypatch.setattr(llama.model.module, "generate", killed)
    with pytest.raises(KeyboardInterrupt):
        write(llama, writing, batch_tokens=10, kept=kept)
    assert len(kept) == calls[0] + calls[1]
    told = []
    found = write(llama, writing, batch_tokens=10, kept=kept, on_step=told.append)
    assert sum(calls[3:]) == len(PROMPTS) - calls[0] - calls[1]
    assert sum(told) == 8 * len(PROMPTS)
    assert len(told) == len(calls) - 2
    before = len(calls)
    assert write(llama, writing, batch_tokens=7, kept=kept) == found
    assert len(calls) == before
    assert found == write(llama, writing)


@pytest.mark.parametrize(
    "other",
    [
        Writing(8, 1.0, 1),
        Writing(8, 2.0, 0),
        Writing(7, 1.0, 0),
        Writing(8),
        Writing(8, 1.0, 0, (5,)),
    ],
)
def test_other_ways_of_writing_are_kept_apart(llama, other):
    kept = {}
    write(llama, Writing(8, 1.0, 0), kept=kept)
    assert write(llama, other, kept=kept) == write(llama, other)
    assert len(kept) == 2 * len(PROMPTS)


def test_models_are_kept_apart(llama):
    kept = {}
    pruned = masked_side(llama, Mask.of(6, [1]))
    found = write(llama, Writing(8), kept=kept), write(pruned, Writing(8), kept=kept)
    assert found == (write(llama, Writing(8)), write(pruned, Writing(8)))
    assert found[0] != found[1]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_are_an_error(own, bad):
    with torch.no_grad():
        own.model.module.model.norm.weight[0] = bad
    with pytest.raises(NotFiniteError, match="of the dense model"):
        write(own, Writing(3, 1.0, 0))


def test_models_that_do_not_generate_are_refused(own, monkeypatch):
    monkeypatch.setattr(own.model.module, "can_generate", lambda: False)
    with pytest.raises(UnsupportedModelError, match="cannot generate"):
        write(own, Writing(3))


def test_texts_that_do_not_fit_are_refused(llama):
    with pytest.raises(UsageError, match="positions"):
        write(llama, Writing(100_000))


@pytest.mark.parametrize(
    "values", [(0,), (4, 0.0), (4, -1.0), (4, float("nan")), (4, float("inf")), (4, 1.0, -1)]
)
def test_ways_of_writing_that_make_no_sense_are_refused(values):
    with pytest.raises(UsageError):
        Writing(*values)


def test_a_model_whose_generation_breaks_is_refused_with_the_reason(llama, monkeypatch):
    def broken(*args, **kwargs):
        raise AttributeError("no such field")

    monkeypatch.setattr(llama.model.module, "generate", broken)
    with pytest.raises(UnsupportedModelError, match=r"AttributeError: no such field.*--probes"):
        write(llama, Writing(2))
