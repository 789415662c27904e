"""Embeddings and what is near what, against plain forwards and scipy."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from transformers import AutoModelForCausalLM

from shoal.core.errors import NotFiniteError, UsageError
from shoal.core.mask import Mask
from shoal.data import Choice, ChoiceItem, ChoiceSet, Corpus, PromptItem, PromptSet, Tokenisation
from shoal.diagnosis.passages import Passage, passage_batches
from shoal.diagnosis.retrieval import retrieval_texts, retrieval_work, retrieve
from shoal.diagnosis.sides import checkpoint_side, dense_side, masked_side
from shoal.models.head import LogitScorer
from shoal.models.load import load_dense
from shoal.testing.tiny import tiny_config, tiny_model, tiny_tokenizer

MASK = Mask.of(6, [2, 3])

BATCH = passage_batches([Passage((5, 6, 7, 8), (9, 10, 11))], 64)[0].tokens


def drawn(count, least=6, most=15, seed=0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(least, most, count)
    return [tuple(int(t) for t in rng.integers(4, 128, n)) for n in sizes]


def pair(dense, mask=MASK):
    side = dense_side(dense, BATCH)
    return side, masked_side(side, mask)


def embedding(module, tokens, pooling):
    with torch.inference_mode():
        states = module.base_model(torch.tensor([tokens])).last_hidden_state[0].double()
    return (states.mean(0) if pooling == "mean" else states[-1]).numpy()


def cosine(x, y):
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))


def plain(modules, texts, pooling, neighbours, start=()):
    """Every measure by loops over texts, each half by a forward of its own."""
    count = len(texts)
    whole, found = [], []
    for module in modules:
        whole.append([embedding(module, t, pooling) for t in texts])
        middles = [len(start) + (len(t) - len(start)) // 2 for t in texts]
        first = [embedding(module, t[:m], pooling) for t, m in zip(texts, middles, strict=True)]
        second = [
            embedding(module, start + t[m:], pooling) for t, m in zip(texts, middles, strict=True)
        ]
        nearest = [max(range(count), key=lambda j: cosine(q, second[j])) for q in first]
        found.append([float(j == i) for i, j in enumerate(nearest)])
    overlap, ranks = [], []
    for i in range(count):
        others = [j for j in range(count) if j != i]
        near = [[cosine(e[i], e[j]) for j in others] for e in whole]
        tops = [set(sorted(range(count - 1), key=lambda j: -s[j])[:neighbours]) for s in near]
        overlap.append(len(tops[0] & tops[1]) / neighbours)
        ranks.append(spearmanr(*near).statistic)
    gaps = [1 - cosine(x, y) for x, y in zip(*whole, strict=True)]
    return {
        "overlap": np.mean(overlap),
        "rank_correlation": np.mean(ranks),
        "found_dense": np.mean(found[0]),
        "found_other": np.mean(found[1]),
        "found_change": np.mean(found[1]) - np.mean(found[0]),
        "hidden_gap": np.mean(gaps),
    }


def values(record, names):
    return {name: getattr(record, name).value for name in names}


@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen3", "opt"])
@pytest.mark.parametrize("start", [(), (1,)])
def test_against_plain_forwards(tiny_dense, family, start):
    dense, other = pair(tiny_dense(family))
    texts = [(*start, *text) for text in drawn(14)]
    found = retrieve(dense, other, texts, neighbours=4, batch_tokens=48)
    assert [r.pooling for r in found] == ["mean", "last"]
    modules = [dense.model.module, other.model.module]
    for record in found:
        assert (record.texts, record.neighbours) == (14, 4)
        expected = plain(modules, texts, record.pooling, 4, start)
        assert expected["hidden_gap"] > 0.05
        assert expected["overlap"] < 1
        assert values(record, expected) == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_the_same_model_finds_the_same(tiny_dense):
    dense, other = pair(tiny_dense("llama"), Mask.dense(6))
    for record in retrieve(dense, other, drawn(9), neighbours=3, batch_tokens=64):
        assert record.overlap.value == 1
        assert record.rank_correlation.value == pytest.approx(1, abs=1e-12)
        assert record.hidden_gap.value == 0
        assert record.found_change.value == 0


def test_order_does_not_matter(tiny_dense):
    dense, other = pair(tiny_dense("gpt2"))
    texts = drawn(12)
    names = ("overlap", "rank_correlation", "found_dense", "found_other", "hidden_gap")
    straight, turned = (
        retrieve(dense, other, t, neighbours=3, batch_tokens=64) for t in (texts, texts[::-1])
    )
    for a, b in zip(straight, turned, strict=True):
        assert values(a, names) == pytest.approx(values(b, names), abs=1e-6)


def test_halves_that_repeat_are_found_and_those_of_others_are_not(tiny_dense):
    dense, other = pair(tiny_dense("llama"))
    words = [t[:6] for t in drawn(8)]
    repeated = [w + w for w in words]
    shifted = [w + words[i - 1] for i, w in enumerate(words)]
    for record in retrieve(dense, other, repeated, batch_tokens=64):
        assert record.found_dense.value == record.found_other.value == 1
    for record in retrieve(dense, other, shifted, batch_tokens=64):
        assert record.found_dense.value == record.found_other.value == 0


def test_states_of_another_size(tiny_dense):
    dense, _ = pair(tiny_dense("llama"))
    config = tiny_config("llama")
    config.hidden_size = 48
    torch.manual_seed(0)
    model = load_dense(AutoModelForCausalLM.from_config(config), tokenizer=tiny_tokenizer())
    texts = drawn(10)
    for record in retrieve(dense, checkpoint_side(model, BATCH), texts, batch_tokens=64):
        assert record.hidden_gap is None
        assert record.neighbours == 4
        assert 0 < record.overlap.value < 1
        assert abs(record.rank_correlation.value) < 1


class _Blind:
    """A runner whose states cannot be seen."""

    name = "blind"

    def run(self, index, batch, masks):
        for mask in masks:
            yield mask, LogitScorer(torch.zeros(len(batch.rows), 128))


def test_states_that_cannot_be_seen(tiny_dense):
    dense, other = pair(tiny_dense("llama"))
    assert retrieve(dense, replace(other, runner=_Blind()), drawn(4), batch_tokens=64) == ()


def test_states_without_numbers(tiny_dense):
    dense, _ = pair(tiny_dense("llama"))
    broken = tiny_model("llama", seed=1)
    broken.get_input_embeddings().weight.data.fill_(torch.nan)
    other = checkpoint_side(load_dense(broken, tokenizer=tiny_tokenizer()), BATCH)
    with pytest.raises(NotFiniteError, match="states of the other model"):
        retrieve(dense, other, drawn(4), batch_tokens=64)


@pytest.mark.parametrize(
    ("texts", "neighbours", "message"),
    [
        (drawn(2), 10, "at least 3 texts, and there are 2"),
        (drawn(4), 0, "at least 1"),
        ([*drawn(3), (5, 6)], 10, "cannot be halved"),
    ],
)
def test_refused(tiny_dense, texts, neighbours, message):
    dense, other = pair(tiny_dense("llama"))
    with pytest.raises(UsageError, match=message):
        retrieve(dense, other, texts, neighbours=neighbours, batch_tokens=64)


def test_progress_adds_up(tiny_dense):
    dense, other = pair(tiny_dense("llama"))
    heard, texts = [], drawn(7)
    retrieve(dense, other, texts, batch_tokens=32, on_step=heard.append)
    assert sum(heard) == retrieval_work(texts) < 2 * sum(map(len, texts))


LINES = [f"the paragraph of number {n} is about {w}" for n, w in enumerate("abcdefgh")]


def corpus(*documents):
    return Corpus.of("text", "test", documents, "here")


def test_paragraphs_of_a_joined_document():
    tokenizer = tiny_tokenizer()
    text = "\n\n".join([" = A title = ", *LINES, " = = Part = = ", "short", LINES[0]])
    found = retrieval_texts(corpus(text), tokenizer, Tokenisation(), length=40)
    assert [tokenizer.decode(t) for t in found] == [
        tokenizer.decode(tokenizer(line, add_special_tokens=False)["input_ids"][:40])
        for line in LINES
    ]


def test_limit_length_and_bos():
    tokenizer = tiny_tokenizer()
    every = retrieval_texts(corpus("\n".join(LINES)), tokenizer, Tokenisation("always"), length=28)
    assert {len(t) for t in every} == {28}
    assert {t[0] for t in every} == {tokenizer.bos_token_id}
    some = [
        retrieval_texts(
            corpus("\n".join(LINES)), tokenizer, Tokenisation("always"), limit=3, length=28
        )
        for _ in range(2)
    ]
    assert some[0] == some[1]
    assert len(some[0]) == 3
    assert set(some[0]) < set(every)


def test_what_a_cut_makes_equal_is_one_text():
    lines = [f"{start} {line}" for start in "xyz" for line in LINES]
    found = retrieval_texts(corpus(*lines), tiny_tokenizer(), Tokenisation(), length=10)
    assert len(found) == len(set(found)) == 3


def test_text_without_paragraphs_is_cut_into_blocks():
    tokenizer = tiny_tokenizer()
    text = " ".join(LINES)
    found = retrieval_texts(corpus(text), tokenizer, Tokenisation(), length=16)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert found == [tuple(ids[i : i + 16]) for i in range(0, len(ids) - 15, 16)]


def test_questions():
    tokenizer = tiny_tokenizer()
    same = ChoiceItem(
        "0", (Choice("What is it?\nAnswer:", " a"), Choice("What is it?\nAnswer:", " b")), 0
    )
    differ = ChoiceItem(
        "1", (Choice("it was Ann", " who won"), Choice("it was Bob", " who won")), 1
    )
    items = ChoiceSet.of("toy", "test", [same, differ, same], "here")
    found = retrieval_texts(items, tokenizer, Tokenisation())
    assert [tokenizer.decode(t) for t in found] == ["What is it?", "it was Bob who won"]
    prompts = PromptSet.of("p", "test", [PromptItem("0", "Tell me of it.\nAnswer:", ())], "here")
    assert [tokenizer.decode(t) for t in retrieval_texts(prompts, tokenizer, Tokenisation())] == [
        "Tell me of it."
    ]


def test_texts_of_too_few_tokens():
    with pytest.raises(UsageError, match="at least 8 tokens"):
        retrieval_texts(corpus(*LINES), tiny_tokenizer(), Tokenisation(), length=4)
