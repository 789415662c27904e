"""Questions answered by letter against the full next-token distribution."""

import logging

import numpy as np
import pytest
import torch

from shoal.core.errors import UsageError
from shoal.core.mask import Mask
from shoal.data import Choice, ChoiceItem, ChoiceSet, Tokenisation
from shoal.diagnosis.choice.letters import ask, by_letters, why_not_by_letter
from shoal.diagnosis.choice.options import choose
from shoal.diagnosis.passages import Passage, passage_batches
from shoal.diagnosis.quantities import QUANTITIES
from shoal.diagnosis.sides import dense_side, masked_side
from shoal.objectives.prompts import lettered
from shoal.testing.families import FAMILIES

PLAIN = Tokenisation()

QUESTIONS = ChoiceSet.of(
    "toy",
    "test",
    [
        ChoiceItem(str(i), tuple(Choice(f"Q{i}: {q}?\nAnswer:", f" {c}") for c in choices), gold)
        for i, (q, choices, gold) in enumerate(
            [
                ("what is red", ("sky", "rose", "sea"), 1),
                ("how many", ("one", "two"), 0),
                ("which of these", ("a", "b", "c", "d", "e"), 4),
                ("it", ("rain", "snow", "sun"), 2),
                ("what else is there", ("no", "yes"), 1),
                ("and then", ("in", "on", "at"), 0),
            ]
        )
    ],
    "here",
)

SENTENCES = ChoiceSet.of(
    "pairs",
    "test",
    [
        ChoiceItem(str(i), (Choice("it was Ann", f" {w}"), Choice("it was Bob", f" {w}")), i % 2)
        for i, w in enumerate(("who won", "who lost"))
    ],
    "here",
)


def pair(dense, mask):
    text = Passage((5, 6, 7, 8), (9, 10, 11))
    side = dense_side(dense, passage_batches([text], 64)[0].tokens)
    return side, masked_side(side, mask)


def next_logits(module, tokenizer, prompt):
    ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    with torch.inference_mode():
        return module(torch.tensor([ids]), use_cache=False).logits[0, -1].double()


def plain(dense, other, temperature):
    tokenizer = dense.model.tokenizer
    rows = []
    for item in QUESTIONS.items:
        prompt = lettered(item).prompt
        labels = tokenizer.convert_tokens_to_ids(list("ABCDE"[: len(item.choices)]))
        z = next_logits(dense.model.module, tokenizer, prompt) / temperature
        y = next_logits(other.model.module, tokenizer, prompt) / temperature
        p, q = z.log_softmax(-1).exp(), y.log_softmax(-1).exp()
        inside_p, inside_q = p[labels] / p[labels].sum(), q[labels] / q[labels].sum()
        kl = float((inside_p * (inside_p / inside_q).log()).sum())
        rows.append(
            {
                "right": float(int(z[labels].argmax()) == item.gold),
                "other_right": float(int(y[labels].argmax()) == item.gold),
                "kept": float(z[labels].argmax() == y[labels].argmax()),
                "subspace_mass": float(p[labels].sum()),
                "subspace_kl": kl,
                "subspace_floor": float(p[labels].sum()) * kl,
                "subspace_gap": 1 - float(torch.cosine_similarity(inside_p, inside_q, dim=0)),
                "kl": float((p * (p / q).log()).sum()),
                "flip": float(z.argmax() != y.argmax()),
            }
        )
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


@pytest.mark.parametrize("family", FAMILIES)
def test_against_the_full_distribution(tiny_dense, family):
    dense, other = pair(tiny_dense(family), Mask.of(6, [2, 3]))
    tokenizer = dense.model.tokenizer
    if PLAIN.prefix(tokenizer):
        pytest.fail("the oracle knows no BOS")
    found = by_letters(
        dense, other, QUESTIONS, tokenisation=PLAIN, batch_tokens=128, temperature=0.5
    )
    expected = plain(dense, other, 0.5)
    assert found.accuracy_dense.value == expected["right"]
    assert found.accuracy_other.value == expected["other_right"]
    assert found.kept.value == expected["kept"]
    assert found.inside["subspace_flip"].value == pytest.approx(1 - found.kept.value)
    values = {name: mean.value for name, mean in (found.inside | found.vocabulary).items()}
    for name in ("subspace_mass", "subspace_kl", "subspace_floor", "subspace_gap", "kl", "flip"):
        assert values[name] == pytest.approx(expected[name], rel=2e-3, abs=1e-6), name
    assert 0 < values["subspace_floor"] <= values["kl"]
    assert set(found.inside) == {q.name for q in QUANTITIES.values() if q.space == "subspace"}
    assert not set(found.inside) & set(found.vocabulary)


def test_nothing_removed_changes_nothing(tiny_dense):
    dense, other = pair(tiny_dense("llama"), Mask.dense(6))
    found = choose(dense, other, QUESTIONS, tokenisation=PLAIN, batch_tokens=128)
    assert [o.scoring for o in found] == ["options", "letters"]
    letters = found[1]
    for name, mean in (letters.inside | letters.vocabulary).items():
        if not QUANTITIES[name].describes_dense:
            assert mean.value == 0, name
    assert letters.kept.value == 1
    assert letters.inside["subspace_mass"].value > 0


def test_a_bos_starts_the_question(tiny_dense):
    with_bos = ask(QUESTIONS, tiny_dense("llama"), Tokenisation("always"))
    without = ask(QUESTIONS, tiny_dense("llama"), PLAIN)
    bos = tiny_dense("llama").tokenizer.bos_token_id
    for a, b in zip(with_bos, without, strict=True):
        assert a.text.tokens == (bos, *b.text.tokens)
        assert a.letters == b.letters


def test_choices_with_contexts_of_their_own_are_scored_by_text_alone(tiny_dense, caplog):
    dense, other = pair(tiny_dense("llama"), Mask.of(6, [2]))
    reason = why_not_by_letter(SENTENCES, dense.model, PLAIN)
    assert reason is not None
    assert "different contexts" in reason
    assert why_not_by_letter(QUESTIONS, dense.model, PLAIN) is None
    with caplog.at_level(logging.WARNING, "shoal"):
        found = choose(dense, other, SENTENCES, tokenisation=PLAIN, batch_tokens=128)
    assert [o.scoring for o in found] == ["options"]
    assert reason in caplog.text
    with pytest.raises(UsageError, match="different contexts"):
        by_letters(dense, other, SENTENCES, tokenisation=PLAIN, batch_tokens=128)
