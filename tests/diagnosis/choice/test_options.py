"""Option scoring of two models against one plain forward per choice."""

import json
import math

import numpy as np
import pytest
import torch

from shoal.core.errors import NotFiniteError, UsageError
from shoal.core.mask import Mask
from shoal.data import Choice, ChoiceItem, ChoiceSet, Tokenisation, encode_choices, load_choices
from shoal.diagnosis.choice.options import by_options, choose, within
from shoal.diagnosis.passages import Passage, passage_batches
from shoal.diagnosis.quantities import QUANTITIES
from shoal.diagnosis.sides import checkpoint_side, dense_side, masked_side
from shoal.evaluation.tasks import TaskSettings, measure
from shoal.models.load import load_dense
from shoal.testing.families import FAMILIES
from shoal.testing.tiny import tiny_model, tiny_tokenizer

MASK = Mask.of(6, [2, 3])

PLAIN = Tokenisation()


def item(i, choices, gold=0, prompt="the cat sat on a"):
    return ChoiceItem(str(i), tuple(Choice(prompt, c) for c in choices), gold)


ITEMS = ChoiceSet.of(
    "toy",
    "train",
    [
        item(0, (" mat", " large dog there", " x"), 2),
        item(1, (" one", " two"), 1, "question: how many are there?\nanswer:"),
        item(2, (" a", " b", " c", " d", " e"), 3, "a longer prompt than the other ones, is it:"),
        # Contexts differ and the continuation is shared, as in winogrande.
        ChoiceItem("3", (Choice("it was Ann", " who won"), Choice("it was Bob", " who won")), 1),
        item(4, (" same start one", " same start two"), 0, "q"),
        *(item(5 + i, (f" {w}", " rather", " s"), i % 3, w) for i, w in enumerate("tinsel")),
    ],
    "here",
)


def pair(dense, mask=MASK):
    text = Passage((5, 6, 7, 8), (9, 10, 11))
    side = dense_side(dense, passage_batches([text], 64)[0].tokens)
    return side, masked_side(side, mask)


def logprobs(module, tokens):
    with torch.inference_mode():
        return module(torch.tensor([tokens]), use_cache=False).logits[0].double().log_softmax(-1)


def scores(module, encoded):
    """Log-likelihood of each choice of an item, each by a forward of its own."""
    found = []
    for choice in encoded.choices:
        table = logprobs(module, choice.tokens)
        first = len(choice.tokens) - choice.scored
        at = range(first, len(choice.tokens))
        found.append(sum(float(table[t - 1, choice.tokens[t]]) for t in at))
    return np.array(found)


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def cosine_gap(x, y):
    return 1 - float(x @ y) / math.sqrt(float(x @ x) * float(y @ y))


def plain(dense_module, other_module, tokenizer):
    """The same numbers by the textbook formulas, averaged over items."""
    rows = []
    for encoded in encode_choices(ITEMS, tokenizer, PLAIN):
        x, y = scores(dense_module, encoded), scores(other_module, encoded)
        p, q = softmax(x), softmax(y)
        change = y - x
        kl = float((p * np.log(p / q)).sum())
        row = {
            "right": float(x.argmax() == encoded.gold),
            "other_right": float(y.argmax() == encoded.gold),
            "kept": float(x.argmax() == y.argmax()),
            "subspace_mass": float(np.exp(x).sum()),
            "subspace_logit_gap": cosine_gap(x, y),
            "subspace_gap": cosine_gap(p, q),
            "subspace_kl": kl,
            "subspace_kl_estimate": float(p @ change**2 - (p @ change) ** 2) / 2,
            "subspace_floor": float(np.exp(x).sum()) * kl,
            "subspace_flip": float(x.argmax() != y.argmax()),
        }
        divergences, gaps = [], []
        for context in {c.tokens[: -c.scored] for c in encoded.choices}:
            log_p, log_q = (logprobs(m, context)[-1] for m in (dense_module, other_module))
            divergences.append(float((log_p.exp() * (log_p - log_q)).sum()))
            gaps.append(cosine_gap(log_p.exp().numpy(), log_q.exp().numpy()))
        row |= {"kl": np.mean(divergences), "probability_gap": np.mean(gaps)}
        rows.append(row)
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def check(found, expected):
    assert found.items == len(ITEMS)
    assert found.accuracy_dense.value == expected["right"]
    assert found.accuracy_other.value == expected["other_right"]
    assert found.accuracy_change.value == pytest.approx(
        expected["other_right"] - expected["right"], abs=1e-12
    )
    assert found.kept.value == expected["kept"]
    inside = {name for name in expected if name.startswith("subspace")}
    assert set(found.inside) == inside
    for name in inside:
        assert found.inside[name].value == pytest.approx(expected[name], rel=2e-3, abs=1e-6), name
    for name in ("kl", "probability_gap"):
        assert found.vocabulary[name].value == pytest.approx(expected[name], rel=2e-3), name


@pytest.mark.parametrize("family", FAMILIES)
def test_against_one_forward_per_choice_of_the_pruned_model(tiny_dense, family):
    dense, other = pair(tiny_dense(family))
    found = by_options(dense, other, ITEMS, tokenisation=PLAIN, batch_tokens=64)
    expected = plain(dense.model.module, other.model.module, dense.model.tokenizer)
    # The model must be changed enough that something could go wrong.
    assert expected["subspace_kl"] > 1e-3
    check(found, expected)


@pytest.mark.parametrize("other_family", ["gpt2", "lfm2"])
def test_against_another_checkpoint(tiny_dense, other_family):
    """Short convolutions read what stands beside them, so there choices are not packed."""
    dense, _ = pair(tiny_dense("llama"))
    model = tiny_dense(other_family)
    other = checkpoint_side(model, passage_batches([Passage((5, 6), (7, 8))], 64)[0].tokens)
    found = by_options(dense, other, ITEMS, tokenisation=PLAIN, batch_tokens=64)
    check(found, plain(dense.model.module, model.module, dense.model.tokenizer))


def test_accuracy_is_that_of_an_evaluation(tiny_dense):
    dense, other = pair(tiny_dense("llama"))
    found = by_options(dense, other, ITEMS, tokenisation=PLAIN, batch_tokens=64)
    measured = measure(
        dense.model, [dense.mask, other.mask], ITEMS, TaskSettings(PLAIN, batch_tokens=64)
    )
    accuracies = [m.value for metrics in measured for m in metrics if m.name == "accuracy"]
    assert [found.accuracy_dense.value, found.accuracy_other.value] == accuracies


def test_nothing_removed_changes_nothing(tiny_dense):
    dense, other = pair(tiny_dense("llama"), Mask.dense(6))
    found = by_options(dense, other, ITEMS, tokenisation=PLAIN, batch_tokens=64)
    measured = found.inside | found.vocabulary
    assert len(measured) > 20
    for name, mean in measured.items():
        if not QUANTITIES[name].describes_dense:
            assert mean.value == 0, name
    assert found.kept.value == 1
    assert found.accuracy_change.value == 0


def test_batches_do_not_matter(tiny_dense):
    dense, other = pair(tiny_dense("gpt2"))
    small, large = (
        by_options(dense, other, ITEMS, tokenisation=PLAIN, batch_tokens=n) for n in (16, 4096)
    )
    for name, mean in (small.inside | small.vocabulary).items():
        value = (large.inside | large.vocabulary)[name].value
        assert mean.value == pytest.approx(value, rel=1e-3, abs=1e-6), name


def test_progress_counts_items_once(tiny_dense):
    dense, other = pair(tiny_dense("llama"))
    heard = []
    choose(dense, other, ITEMS, tokenisation=PLAIN, batch_tokens=64, on_step=heard.append)
    assert sum(heard) == len(ITEMS)


@pytest.mark.parametrize("seed", range(20))
def test_the_floor_holds_for_laws_of_texts(seed):
    """All texts of two tokens are listed; options of one and two tokens, none begins another."""
    rng = np.random.default_rng(seed)

    def law():
        first = softmax(rng.normal(0, 2, 3))
        return first, np.stack([softmax(rng.normal(0, 2, 3)) for _ in range(3)])

    (p, p_next), (q, q_next) = law(), law()
    joint_p, joint_q = p[:, None] * p_next, q[:, None] * q_next
    kl = float((joint_p * np.log(joint_p / joint_q)).sum())
    l_p = np.log([p[0], joint_p[1, 0], joint_p[1, 2]])
    l_q = np.log([q[0], joint_q[1, 0], joint_q[1, 2]])
    found = within(
        torch.tensor(np.array([l_p])), torch.tensor(np.array([l_q])), torch.ones(1, 3) > 0
    )
    assert 0 < found["subspace_floor"][0] <= kl
    assert found["subspace_mass"][0] == pytest.approx(p[0] + joint_p[1, 0] + joint_p[1, 2])


def test_absent_options_count_for_nothing():
    x, y = torch.tensor([[-1.0, -2.5, -4.0]]).double(), torch.tensor([[-1.5, -2.0, -7.0]]).double()
    absent = torch.full((1, 2), -torch.inf, dtype=torch.float64)
    alone = within(x, y, torch.ones(1, 3) > 0)
    padded = within(
        torch.cat([x, absent], 1),
        torch.cat([y, absent], 1),
        torch.tensor([[True] * 3 + [False] * 2]),
    )
    assert {n: v[0] for n, v in padded.items()} == pytest.approx(
        {n: v[0] for n, v in alone.items()}
    )


def test_a_model_without_numbers_is_named(tiny_dense):
    dense, _ = pair(tiny_dense("llama"))
    broken = tiny_model("llama", seed=1)
    broken.get_input_embeddings().weight.data.fill_(torch.nan)
    model = load_dense(broken, tokenizer=tiny_tokenizer())
    batch = passage_batches([Passage((5, 6), (7, 8))], 64)[0].tokens
    other = checkpoint_side(model, batch, "halved")
    with pytest.raises(NotFiniteError, match="under the halved model"):
        by_options(dense, other, ITEMS, tokenisation=PLAIN, batch_tokens=64)


def test_no_items(tiny_dense):
    dense, other = pair(tiny_dense("llama"))
    empty = ChoiceSet.of("none", "train", [], "here")
    with pytest.raises(UsageError, match="no items"):
        by_options(dense, other, empty, tokenisation=PLAIN, batch_tokens=64)


@pytest.mark.real
def test_reference_accuracies(real_dense, shared):
    """Accuracies that were computed independently, of the dense model and of blocks left out."""
    golden = json.loads((shared / "golden/smollm2.json").read_text())["masks"]
    data = load_choices("arc_easy", data_dir=shared / "data", split="train", limit=40)
    for i in (3, 8):
        dense, other = pair(real_dense, Mask.of(30, golden[i]["removed"]))
        found = by_options(dense, other, data, tokenisation=PLAIN, batch_tokens=2048)
        assert found.accuracy_dense.value == pytest.approx(golden[0]["accuracy"])
        assert found.accuracy_other.value == pytest.approx(golden[i]["accuracy"])
        assert 0 < found.kept.value < 1
