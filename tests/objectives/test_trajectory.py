"""Continuations against slow decoding, and the loss along them by hand."""

import json
from math import fsum

import pytest
import torch
from transformers import GenerationConfig

from shoal.config.objectives import TrajectoryConfig
from shoal.core import fingerprint
from shoal.core.errors import UsageError
from shoal.core.mask import Mask
from shoal.data import (
    Choice,
    ChoiceItem,
    ChoiceSet,
    Corpus,
    PromptItem,
    PromptSet,
    Tokenisation,
)  # fmt: skip
from shoal.engine.evaluator import Evaluator
from shoal.engine.losses import ScoredLosses
from shoal.engine.selfcheck import choose_runner
from shoal.engine.store import Store
from shoal.models.load import load_dense
from shoal.models.masked import muted
from shoal.objectives.build import build_objective
from shoal.objectives.continuations import continue_greedily
from shoal.testing.tiny import tiny_model, tiny_tokenizer

FAMILIES = ["llama", "gpt2", "mistral", "gemma2", "mixtral", "granitemoehybrid", "lfm2"]
"""Plain, learned positions, windows, experts, and recurrent blocks."""

TEXT = "there is more in the world than is written in any of the books on it, said one. " * 4
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def own_dense(family="llama"):
    """A model that a test may change."""
    return load_dense(tiny_model(family), tokenizer=tiny_tokenizer())


def stop_at(dense, *tokens):
    """Let only these tokens end a text."""
    dense.module.generation_config.eos_token_id = list(tokens)
    dense.module.config.eos_token_id = None
    dense.tokenizer.eos_token = None
    return dense


def slowly(dense, prompt, count, stops=()):
    """Token by token, without cache or batch."""
    ids = list(prompt)
    for _ in range(count):
        with torch.inference_mode():
            ids.append(
                int(dense.module(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax())
            )
        if ids[-1] in stops:
            break
    return ids[len(prompt) :]


def prompts_of(lengths, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(4, 128, (n,), generator=generator).tolist() for n in lengths]


def prompt_set(*texts):
    return PromptSet.of("own", "file", [PromptItem(str(i), t) for i, t in enumerate(texts)], "here")


def build(dense, data, bos="auto", limit=None, artifacts=None, **config):
    kept = {} if artifacts is None else {"artifacts": artifacts}
    own = TrajectoryConfig(**({"new_tokens": 6} | config))
    return build_objective(
        own, data, dense, tokenisation=Tokenisation(bos), batch_tokens=64, limit=limit, **kept
    )


def texts_of(objective):
    """For each example its prompt and its scored tokens."""
    found = {}
    for batch in objective.batches:
        t = batch.tokens
        width = t.input_ids.shape[1]
        for place, example in enumerate(batch.examples):
            mine = t.segment == place
            first = int(t.rows[t.pick[mine]].min()) - place * width
            row = t.input_ids[place, : first + 1 + int(mine.sum())].tolist()
            assert row[first + 1 :] == t.targets[mine].tolist()
            found[example] = (row[: first + 1], row[first + 1 :])
    return [found[i] for i in range(objective.num_examples)]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("batch_tokens", [1, 4096])
def test_continuations_equal_slow_decoding(tiny_dense, family, batch_tokens):
    dense, prompts = tiny_dense(family), prompts_of([5, 11, 5, 7, 11])
    found = continue_greedily(dense, prompts, 14, batch_tokens)
    assert found == [slowly(dense, p, 14, stops=(2,)) for p in prompts]
    assert found[0] != found[2]


def test_a_continuation_ends_with_its_eos_token():
    dense, prompts = own_dense(), prompts_of([6, 6, 6, 9])
    free = continue_greedily(stop_at(dense), prompts, 20, 4096)
    assert [len(t) for t in free] == [20] * 4
    stops = (free[0][3], free[1][0])
    found = continue_greedily(stop_at(dense, *stops), prompts, 20, 4096)
    assert found == [slowly(dense, p, 20, stops) for p in prompts]
    assert len(found[0]) <= 4
    assert found[0][-1] in stops
    assert found[1] == [free[1][0]]
    assert max(map(len, found)) > 10, "one must go on for long"


def test_the_models_own_generation_settings_count_for_nothing():
    dense, prompts = own_dense(), prompts_of([6, 8])
    plain = continue_greedily(stop_at(dense), prompts, 10, 64)
    own = GenerationConfig(
        do_sample=True, temperature=3.0, num_beams=2, repetition_penalty=9.0, max_length=3,
        no_repeat_ngram_size=1, suppress_tokens=[plain[0][0]], min_new_tokens=99,
    )  # fmt: skip
    dense.module.generation_config = own
    assert continue_greedily(dense, prompts, 10, 64) == plain
    assert dense.module.generation_config is own


def test_only_prompts_of_equal_length_run_together(monkeypatch):
    dense, shapes = own_dense(), []
    generate = dense.module.generate
    monkeypatch.setattr(
        dense.module, "generate", lambda ids, **k: shapes.append(ids.shape) or generate(ids, **k)
    )
    continue_greedily(dense, prompts_of([5, 7, 5, 5, 7]), 3, batch_tokens=16)
    assert sorted(map(tuple, shapes)) == [(1, 5), (1, 7), (1, 7), (2, 5)]


@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral", "lfm2"])
@pytest.mark.parametrize("force", [None, "whole"])
def test_loss_is_divergence_at_the_continuation_only(family, force):
    dense = own_dense(family)
    data = prompt_set("a tree", "one of the seas", "it", "of the other")
    free = build(stop_at(dense), data, new_tokens=9)
    texts = texts_of(free)
    # One text ends early, so that they weigh differently.
    objective = build(stop_at(dense, texts[1][1][2]), data, new_tokens=9)
    texts = texts_of(objective)
    assert len({len(scored) for _, scored in texts}) > 1
    choice = choose_runner(dense, objective.batches[0].tokens, force=force)
    assert choice.runner.name == (force or "replay")
    masks = [Mask.dense(6), Mask.of(6, [2]), Mask.of(6, [1, 4])]
    source = ScoredLosses(dense, objective, choice.runner)
    found = Evaluator(objective, source, Store(None, {}, objective.weights)).evaluate(masks)
    for evaluation in found:
        sums = []
        for prompt, scored in texts:
            both = []
            for mask in (Mask.dense(6), evaluation.mask):
                with muted(dense.blocks, mask), torch.inference_mode():
                    z = dense.module(torch.tensor([prompt + scored]), use_cache=False).logits[0]
                both.append(z.double().log_softmax(-1)[len(prompt) - 1 : -1])
            p, q = both
            assert p.argmax(-1).tolist() == scored
            sums.append(float((p.exp() * (p - q)).sum()))
        lengths = [len(scored) for _, scored in texts]
        expected = [s / n for s, n in zip(sums, lengths, strict=True)]
        assert evaluation.losses == pytest.approx(expected, abs=1e-5)
        assert evaluation.mean == pytest.approx(fsum(sums) / sum(lengths), abs=1e-5)
    assert found[0].mean == 0.0
    assert found[1].mean > 1e-3


def test_continuations_are_computed_once(monkeypatch):
    dense, kept, calls = stop_at(own_dense()), {}, []
    generate = dense.module.generate
    monkeypatch.setattr(
        dense.module, "generate", lambda *a, **k: calls.append(1) or generate(*a, **k)
    )
    first = build(dense, prompt_set("a tree"), artifacts=kept)
    again = build(dense, prompt_set("a tree"), artifacts=kept)
    assert len(calls) == 1
    assert (first.fingerprint, texts_of(first)) == (again.fingerprint, texts_of(again))
    # What is kept is what is used: another machine may have decided a tie differently.
    (key,) = kept
    other = [[7, 8, 9]]
    kept[key] = json.dumps(other).encode()
    changed = build(dense, prompt_set("a tree"), artifacts=kept)
    assert [scored for _, scored in texts_of(changed)] == other
    assert changed.fingerprint != first.fingerprint
    prompt = texts_of(first)[0][0]
    named = ["trajectory", dense.fingerprint, "float32", [prompt], 6, []]
    assert key == fingerprint.of_json(named)
    assert len(calls) == 1
    build(dense, prompt_set("a tree"), artifacts=kept, new_tokens=5)
    build(dense, prompt_set("a bee"), artifacts=kept)
    stop_at(dense, 9)
    build(dense, prompt_set("a tree"), artifacts=kept)
    assert len(calls) == len(kept) == 4


def test_prompts_of_every_kind_of_data():
    dense = stop_at(own_dense())

    def ids(text):
        return dense.tokenizer(text, add_special_tokens=False).input_ids

    def prompts(objective):
        return [prompt for prompt, _ in texts_of(objective)]

    asked = prompt_set("a tree", "the sea ", "it")
    assert prompts(build(dense, asked)) == [ids("a tree"), ids("the sea "), ids("it")]
    assert prompts(build(dense, asked, limit=2)) == [ids("a tree"), ids("the sea ")]
    assert prompts(build(dense, asked, bos="always"))[2] == [1, *ids("it")]
    items = [
        ChoiceItem("0", (Choice("Q: who?\nA: ", "you"), Choice("Q: who?\nA: ", "me")), 1),
        ChoiceItem("1", (Choice("Q: why?\nA:", " so"), Choice("Q: other", " no")), 0),
    ]
    chosen = ChoiceSet.of("own", "file", items, "here")
    assert prompts(build(dense, chosen)) == [ids("Q: who?\nA:"), ids("Q: why?\nA:")]
    stream = ids(TEXT)
    corpus = Corpus.of("own", "file", [TEXT], "here")
    blocks = build(dense, corpus, prompt_tokens=5, limit=3)
    assert prompts(blocks) == [stream[0:5], stream[5:10], stream[10:15]]
    assert build(dense, corpus, prompt_tokens=4).num_examples == 32
    withbos = build(dense, corpus, prompt_tokens=5, limit=2, bos="always")
    assert prompts(withbos) == [[1, *stream[:4]], [1, *stream[4:8]]]
    passages = Corpus.of("lambada", "train", ["one two three", "four"], "here")
    assert prompts(build(dense, passages, prompt_tokens=4)) == [
        ids("one two three")[:4],
        ids("four"),
    ]


def test_what_is_said_of_it():
    dense = own_dense()
    data = prompt_set("a tree", "one of the seas", "it")
    free = texts_of(build(stop_at(dense), data))
    objective = build(stop_at(dense, free[0][1][1]), data)
    lengths = [len(scored) for _, scored in texts_of(objective)]
    assert min(lengths) < 6
    said = {"prompts": 3, "new_tokens": 6, "mean_continuation": sum(lengths) / 3, "chat": False}
    assert objective.data.items() >= said.items()
    assert objective.expression == "trajectory:own"
    assert objective.weights == [float(n) for n in lengths]


@pytest.mark.parametrize("bos", ["auto", "always"])
def test_chat_template_with_one_bos(bos):
    dense = stop_at(own_dense())
    with pytest.raises(UsageError, match="has no chat template"):
        build(dense, prompt_set("hey"), chat=True)
    dense.tokenizer.chat_template = TEMPLATE

    def expected(text):
        rest = f"user: {text}\nassistant:"
        return [1, *dense.tokenizer(rest, add_special_tokens=False).input_ids]

    objective = build(dense, prompt_set("hey", "you there"), bos=bos, chat=True)
    assert [p for p, _ in texts_of(objective)] == [expected("hey"), expected("you there")]
    assert objective.data["chat"] is True
    corpus = Corpus.of("own", "file", [TEXT], "here")
    (text,) = texts_of(build(dense, corpus, bos=bos, chat=True, prompt_tokens=9, limit=1))
    block = dense.tokenizer(TEXT, add_special_tokens=False).input_ids
    block = block[: 9 if bos == "auto" else 8]
    assert text[0] == expected(dense.tokenizer.decode(block))


def test_continuations_that_do_not_fit():
    dense = stop_at(own_dense())
    corpus = Corpus.of("own", "file", [TEXT], "here")
    most = build(dense, corpus, prompt_tokens=64, new_tokens=64, limit=1)
    assert [len(t) for t in texts_of(most)[0]] == [64, 64]
    with pytest.raises(UsageError, match=r"64 tokens and 65 new .* 128 .* --new-tokens 64 or less"):
        build(dense, corpus, prompt_tokens=64, new_tokens=65, limit=1)
    with pytest.raises(UsageError, match=r"prompts of at most 127 tokens"):
        build(dense, corpus, prompt_tokens=128, new_tokens=1, limit=1)
    with pytest.raises(UsageError, match=r"128 positions"):
        build(dense, prompt_set("it " * 60), new_tokens=64)
