"""Generated answers against a token loop without cache; lettering, chat, stop texts, NaN."""

import math

import pytest
import torch

from shoal.config.objectives import ExactMatchConfig
from shoal.core.errors import UsageError
from shoal.data import (
    Choice,
    ChoiceItem,
    ChoiceSet,
    PromptItem,
    PromptSet,
    Tokenisation,
    load_choices,
    load_prompts,
)
from shoal.models.load import load_dense
from shoal.objectives import prompt_batches
from shoal.objectives.build import build_objective
from shoal.objectives.decoding import Decoding, end_tokens, write
from shoal.objectives.prompts import lettered
from shoal.objectives.stops import StopTexts, stop_place, text_of
from shoal.testing.tiny import tiny_model, tiny_tokenizer

PROMPTS = (
    "the cat sat on a",
    "q",
    "a longer prompt than the other ones, is it:",
    "what is it, in a word?\nanswer:",
    "the cat sat on o",
)
FAMILIES = ["llama", "mistral", "gemma3_text", "gpt2", "bloom", "lfm2"]


def prompts(*answers, texts=PROMPTS):
    items = [PromptItem(str(i), text, answers or ("42",)) for i, text in enumerate(texts)]
    return PromptSet.of("toy", "train", items, "here")


def build(dense, data=None, *, batch_tokens=128, bos="auto", racing=False, **config):
    return build_objective(
        ExactMatchConfig(**({"new_tokens": 12} | config)),
        data or prompts(),
        dense,
        tokenisation=Tokenisation(bos),
        batch_tokens=batch_tokens,
        racing=racing,
    )


def texts(objective, model):
    found = {}
    with torch.inference_mode():
        for batch in objective.batches:
            found |= dict(zip(batch.examples, objective.texts(model, batch), strict=True))
    return [found[i] for i in range(objective.num_examples)]


def slow(dense, prompt, new_tokens, stops=(), bos=False):
    """One token after another, all of them run again for each."""
    ids = dense.tokenizer(prompt, add_special_tokens=False).input_ids
    ids = [dense.tokenizer.bos_token_id, *ids] if bos else ids
    written = []
    with torch.inference_mode():
        for _ in range(new_tokens):
            logits = dense.module(torch.tensor([ids + written]), use_cache=False).logits
            token = int(logits[0, -1].argmax())
            if token == dense.tokenizer.eos_token_id:
                break
            written.append(token)
    return text_of(written, stops, dense.tokenizer)


@pytest.fixture
def own_dense():
    """A tiny model that a test may change."""
    return load_dense(tiny_model("llama"), tokenizer=tiny_tokenizer())


@pytest.mark.parametrize("family", FAMILIES)
def test_decoding_equals_a_slow_loop_for_every_batch_size(tiny_dense, family):
    dense = tiny_dense(family)
    expected = [slow(dense, p, 12, ("\n\n", "\nQuestion:")) for p in PROMPTS]
    assert len(set(expected)) > 1
    for batch_tokens in (1, 10**4):
        objective = build(dense, batch_tokens=batch_tokens)
        assert texts(objective, dense.module) == expected
    assert len(objective.batches) == 1


@pytest.mark.parametrize("family", ["llama", "lfm2"])
def test_where_padding_is_wrong_batches_have_one_length(tiny_dense, family, monkeypatch):
    dense, write = tiny_dense(family), prompt_batches.write
    expected = texts(build(dense), dense.module)
    monkeypatch.setattr(
        prompt_batches,
        "write",
        lambda model, ids, mask, *a, **k: write(model, ids, torch.ones_like(mask), *a, **k),
    )
    objective = build(dense, batch_tokens=10**4)
    assert objective.data["left_padded"] is False
    assert all(b.attention_mask.all() for b in objective.batches)
    # Two of the five prompts are equally long.
    assert sorted(len(b.examples) for b in objective.batches) == [1, 1, 1, 2]
    assert texts(objective, dense.module) == expected


def test_a_model_that_cannot_be_padded_falls_back(tiny_dense, monkeypatch):
    write = prompt_batches.write

    def picky(model, ids, mask, *args, **options):
        if not mask.all():
            raise ValueError("no padding here")
        return write(model, ids, mask, *args, **options)

    monkeypatch.setattr(prompt_batches, "write", picky)
    assert build(tiny_dense("llama")).data["left_padded"] is False
    same = build(tiny_dense("llama"), prompts(texts=("the cat a", "the cat o")))
    assert same.data["left_padded"] is True


def test_micro_batches_respect_their_size(tiny_dense):
    objective = build(tiny_dense("llama"), prompts(texts=PROMPTS * 8), batch_tokens=200)
    assert len(objective.batches) > 4
    for batch in objective.batches:
        assert len(batch.examples) * (batch.input_ids.shape[1] + 12) <= 200
    assert objective.num_tokens == sum(
        b.input_ids.numel() + 12 * len(b.examples) for b in objective.batches
    )


def test_parts_hold_every_prompt_once(tiny_dense):
    objective = build(tiny_dense("llama"), prompts(texts=PROMPTS * 4), racing=True)
    sizes = [sum(len(objective.batches[b].examples) for b in part) for part in objective.parts]
    assert sizes == [10, 10]
    assert sorted(e for b in objective.batches for e in b.examples) == list(range(20))


def test_the_models_own_settings_count_for_nothing_and_stay(own_dense):
    expected = texts(build(own_dense), own_dense.module)
    own = own_dense.module.generation_config
    own.update(
        do_sample=True,
        temperature=9.0,
        repetition_penalty=5.0,
        no_repeat_ngram_size=1,
        num_beams=3,
        max_length=3,
        min_new_tokens=12,
        suppress_tokens=list(range(64)),
        forced_eos_token_id=70,
    )
    before = own.to_dict()
    assert texts(build(own_dense), own_dense.module) == expected
    assert own_dense.module.generation_config is own
    assert own.to_dict() == before


def test_losses_are_errors(tiny_dense):
    dense = tiny_dense("llama")
    (first, *_) = texts(build(dense), dense.module)
    objective = build(dense, prompts("no", first), match="text", batch_tokens=10**4)
    (batch,) = objective.batches
    losses = dict(zip(batch.examples, objective.losses(dense.module, batch), strict=True))
    assert losses[0] == 0.0
    assert set(losses.values()) == {0.0, 1.0}
    assert all(isinstance(loss, float) for loss in losses.values())


def test_eos_ends_an_answer_whoever_names_it(own_dense):
    ids = torch.tensor([own_dense.tokenizer(PROMPTS[0], add_special_tokens=False).input_ids])
    how = Decoding(12, end_tokens(own_dense))
    assert how.eos == (2,)
    arguments = (own_dense.module, ids, torch.ones_like(ids))
    (long,) = write(*arguments, how, own_dense.tokenizer).tokens
    end = long[5]
    own_dense.module.generation_config.eos_token_id = [2, end]
    how = Decoding(12, end_tokens(own_dense))
    assert how.eos == (2, end)
    assert write(*arguments, how, own_dense.tokenizer).tokens == [long[: long.index(end)]]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_not_finite_make_the_loss_nan(own_dense, bad):
    objective = build(own_dense, batch_tokens=10**4)
    (batch,) = objective.batches
    with torch.no_grad():
        own_dense.module.lm_head.weight[7] = bad
    assert all(map(math.isnan, objective.losses(own_dense.module, batch)))


def test_tokens_ruled_out_by_minus_infinity_are_no_fault(own_dense):
    objective = build(own_dense, batch_tokens=10**4)

    def rule_out(module, args, output):
        output.logits[..., 5] = -math.inf
        return output

    with own_dense.module.register_forward_hook(rule_out):
        assert None not in texts(objective, own_dense.module)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (" 42\n\nQuestion: next", 3),
        ("\n\n42\n\n7", 4),
        ("\nQuestion: next", 0),
        ("42\nQuestion: a\n\n", 2),
        ("\n\n", None),
        ("42", None),
    ],
)
def test_where_an_answer_ends(text, place):
    assert stop_place(text, ("\n\n", "\nQuestion:")) == place


def test_decoding_ends_when_all_rows_hold_a_stop_text(tiny_dense):
    dense = tiny_dense("llama")
    long = texts(build(dense, new_tokens=20), dense.module)
    stops = tuple({text[4:7] for text in long})
    objective = build(dense, new_tokens=20, stop=stops, batch_tokens=10**4)
    calls = []
    with dense.module.register_forward_pre_hook(lambda *_: calls.append(1)):
        found = texts(objective, dense.module)
    assert len(calls) < 15
    assert found == [text[: stop_place(text, stops)] for text in long]


def test_stop_texts_are_noticed_across_tokens(tiny_dense):
    tokenizer = tiny_dense("llama").tokenizer
    criterion = StopTexts(tokenizer, ("xyz",), 2)
    rows = [tokenizer("..a bxyz", add_special_tokens=False).input_ids for _ in range(2)]
    rows[1] = [*rows[1][:-1], rows[1][0]]
    for width in range(3, len(rows[0]) + 1):
        done = criterion(torch.tensor(rows)[:, :width], None).tolist()
        assert done == [width == len(rows[0]), False]


def test_default_stops_are_for_plain_prompts(tiny_dense):
    dense = tiny_dense("llama")
    assert build(dense).data["stop"] == ["\n\n", "\nQuestion:"]
    assert build(dense, stop=("#",)).data["stop"] == ["#"]
    with pytest.raises(UsageError, match="a stop text is empty"):
        build(dense, stop=("",))


def test_rules_of_matching(tiny_dense):
    dense = tiny_dense("llama")
    assert build(dense, prompts("1,000", "42%")).data["match"] == "numeric"
    assert build(dense, prompts("42", "forty-two")).data["match"] == "auto"
    assert build(dense, prompts("yes"), match="prefix").data["match"] == "prefix"
    with pytest.raises(UsageError, match=r"the answer 'yes' of item \"0\" is no number"):
        build(dense, prompts("yes"), match="numeric")
    none = PromptSet.of("own", "file", [PromptItem("q7", "p")], "here")
    with pytest.raises(UsageError, match='item "q7" has no answer to compare with'):
        build(dense, none)


def choice_set(*contexts, answers=(" air", " iron", " wood"), gold=1):
    contexts = contexts * len(answers) if len(contexts) == 1 else contexts
    choices = tuple(map(Choice, contexts, answers))
    return ChoiceSet.of("toy", "train", [ChoiceItem("i", choices, gold)], "here")


@pytest.mark.parametrize(
    ("context", "question"),
    [
        ("Question: What rusts?\nAnswer:", "Question: What rusts?\n"),
        ("Which is it?\n\nAnswer: ", "Which is it?\n"),
        ("Q: Why?\nA:", "Q: Why?\n"),
        ("Rust forms on", "Rust forms on\n"),
        ("On DNA:", "On DNA:\n"),
        ("", ""),
    ],
)
def test_choices_as_letters(context, question):
    (item,) = choice_set(context).items
    asked = lettered(item)
    assert asked.prompt == f"{question}A. air\nB. iron\nC. wood\nAnswer:"
    assert (asked.id, asked.answers) == ("i", ("B",))


def test_letters_are_judged_by_the_start_of_few_tokens(tiny_dense):
    dense = tiny_dense("llama")
    objective = build(dense, choice_set("Q:"), new_tokens=100)
    assert objective.data["match"] == "letter"
    assert objective.data["new_tokens"] == 4
    assert objective.data["lettered"] is True
    assert build(dense, choice_set("Q:"), new_tokens=1).data["new_tokens"] == 1
    with pytest.raises(UsageError, match='answered by a letter, so match "numeric"'):
        build(dense, choice_set("Q:"), match="numeric")


def test_choices_that_cannot_be_lettered(tiny_dense):
    dense = tiny_dense("llama")
    with pytest.raises(UsageError, match='item "i" have different contexts, as in winogrande'):
        build(dense, choice_set("it was Ann", "it was Bob", answers=(" who won", " who won")))
    many = choice_set("Q", answers=tuple(f" {i}" for i in range(27)))
    with pytest.raises(UsageError, match="27 choices, more than there are letters"):
        build(dense, many)


def test_prompts_that_are_too_long(tiny_dense):
    with pytest.raises(UsageError, match=r'item "2" has \d+ tokens; with 120 new tokens .* 128'):
        build(tiny_dense("llama"), new_tokens=120)
    build(tiny_dense("llama"), prompts(texts=("q",)), new_tokens=128)


TEMPLATE = "{% for m in messages %}<bos>[{{ m.role }}: {{ m.content }}] {% endfor %}"


def ids_of(objective):
    (batch,) = objective.batches
    return batch.input_ids[0].tolist()


@pytest.mark.parametrize("bos", ["auto", "always"])
def test_chat_has_one_bos_and_no_default_stops(own_dense, bos):
    with pytest.raises(UsageError, match="has no chat template"):
        build(own_dense, chat=True)
    own_dense.tokenizer.chat_template = TEMPLATE
    objective = build(own_dense, prompts(texts=("hey",)), chat=True, bos=bos)
    text = "<bos>[user: hey] "
    assert ids_of(objective) == own_dense.tokenizer(text, add_special_tokens=False).input_ids
    assert ids_of(objective).count(own_dense.tokenizer.bos_token_id) == 1
    assert objective.data["stop"] == []
    own_dense.tokenizer.chat_template = "{{ raise_exception('no') }}"
    with pytest.raises(UsageError, match=r"the chat template of .* fails: no"):
        build(own_dense, chat=True)


def test_a_template_without_bos_gets_it(own_dense):
    own_dense.tokenizer.chat_template = TEMPLATE.replace("<bos>", "")
    objective = build(own_dense, prompts(texts=("hey",)), chat=True, bos="always")
    assert ids_of(objective)[0] == own_dense.tokenizer.bos_token_id
    assert texts(objective, own_dense.module) == [slow(own_dense, "[user: hey] ", 12, bos=True)]


def test_options_and_answers_are_part_of_the_fingerprint(tiny_dense):
    dense = tiny_dense("llama")
    variants = [
        build(dense),
        build(dense, prompts("43")),
        build(dense, prompts(texts=PROMPTS[:4])),
        build(dense, match="text"),
        build(dense, stop=("#",)),
        build(dense, new_tokens=11),
        build(dense, bos="always"),
    ]
    assert len({o.fingerprint for o in variants}) == len(variants)
    assert build(dense, batch_tokens=1).fingerprint == build(dense).fingerprint


def test_a_model_that_cannot_generate(own_dense, monkeypatch):
    monkeypatch.setattr(type(own_dense.module), "can_generate", classmethod(lambda cls: False))
    with pytest.raises(ValueError, match="cannot generate text"):
        build(own_dense)


@pytest.mark.real
def test_real_questions(shared, real_dense):
    gsm8k = load_prompts("gsm8k", data_dir=shared / "data", limit=2, purpose="report")
    objective = build(real_dense, gsm8k, new_tokens=8)
    assert objective.data["match"] == "numeric"
    assert objective.data["left_padded"] is True
    assert None not in texts(objective, real_dense.module)
    arc = load_choices("arc_easy", data_dir=shared / "data", limit=4)
    chat = build(real_dense, arc, chat=True, batch_tokens=2048)
    plain = build(real_dense, arc, batch_tokens=2048)
    assert None not in texts(plain, real_dense.module)
    assert {text[0] for text in texts(chat, real_dense.module)} <= set("ABCD")
    start = real_dense.tokenizer.decode(chat.batches[0].input_ids[0])
    assert start.count("<|im_start|>system") == 1
