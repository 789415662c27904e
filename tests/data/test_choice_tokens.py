import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from shoal.core.errors import UsageError
from shoal.data import (
    Choice,
    ChoiceItem,
    ChoiceSet,
    EncodedItem,
    Tokenisation,
    encode_choices,
    load_choices,
)

Fast = PreTrainedTokenizerFast


def encode(
    tokenizer: Fast,
    *pairs: tuple[str, str],
    bos: str = "auto",
    max_length: int | None = None,
) -> EncodedItem:
    item = ChoiceItem("q", tuple(Choice(*p) for p in pairs), 0)
    given_set = ChoiceSet.of("s", "file", [item], "file s")
    return encode_choices(given_set, tokenizer, Tokenisation(bos), max_length)[0]  # type: ignore[arg-type]


def plain(tokenizer: Fast, text: str) -> tuple[int, ...]:
    return tuple(tokenizer.encode(text, add_special_tokens=False))


def test_context_and_continuation(tokenizer: Fast) -> None:
    item = encode(tokenizer, ("Answer:", " Mars"), ("Answer:", " a dog"))
    for choice, text in zip(item.choices, (" Mars", " a dog"), strict=True):
        assert choice.tokens == plain(tokenizer, "Answer:" + text)
        assert tokenizer.decode(list(choice.tokens[-choice.scored :])) == text


def test_bytes_have_the_leading_space_and_characters_do_not(tokenizer: Fast) -> None:
    first, second = encode(tokenizer, ("A:", " née"), ("A:", "née")).choices
    assert (first.num_bytes, first.num_chars) == (5, 3)
    assert (second.num_bytes, second.num_chars) == (4, 3)


@pytest.mark.parametrize(("context", "moved"), [("Answer: ", " Mars"), ("Answer:\n", "\nMars")])
def test_trailing_space_moves_to_the_continuation(
    tokenizer: Fast, context: str, moved: str
) -> None:
    choice = encode(tokenizer, (context, "Mars"), (context, "dog")).choices[0]
    assert tokenizer.decode(list(choice.tokens[-choice.scored :])) == moved
    assert choice.num_chars == 4


def test_one_bos_comes_first(bos_tokenizer: Fast) -> None:
    choice = encode(bos_tokenizer, ("A:", " Mars"), ("A:", " dog")).choices[0]
    assert choice.tokens == (bos_tokenizer.bos_token_id, *plain(bos_tokenizer, "A: Mars"))


@pytest.mark.parametrize("bos", ["auto", "always", "never"])
@pytest.mark.parametrize("context", ["", " "])
def test_an_empty_context_becomes_one_token(tokenizer: Fast, bos: str, context: str) -> None:
    choice = encode(tokenizer, (context, " Mars"), (context, " dog"), bos=bos).choices[0]
    assert choice.tokens == (tokenizer.bos_token_id, *plain(tokenizer, context + " Mars"))
    assert choice.scored == len(choice.tokens) - 1


def test_an_empty_context_falls_back_to_eos(bare_tokenizer: Fast) -> None:
    with pytest.raises(UsageError, match="neither"):
        encode(bare_tokenizer, ("", "a"), ("", "b"))
    with_eos = Fast(tokenizer_object=bare_tokenizer.backend_tokenizer, eos_token="</s>")
    assert encode(with_eos, ("", "a"), ("", "b")).choices[0].tokens[0] == with_eos.eos_token_id


def test_a_continuation_lost_in_a_merge_is_encoded_alone(merging_tokenizer: Fast) -> None:
    lost, kept = encode(merging_tokenizer, ("ab", "c"), ("ab", "ab")).choices
    assert (lost.tokens, lost.scored) == ((3, 2), 1)
    assert (kept.tokens, kept.scored) == ((3, 3), 1)


def test_a_continuation_without_any_token(bare_tokenizer: Fast) -> None:
    with pytest.raises(UsageError, match="continuation '~' of item \"q\" has no token"):
        encode(bare_tokenizer, ("A:", "~"), ("A:", "b"))


@pytest.mark.parametrize("bos", ["never", "always"])
def test_long_contexts_lose_their_start(
    tokenizer: Fast, bos: str, caplog: pytest.LogCaptureFixture
) -> None:
    pairs = (("the lazy dog " * 20 + "A:", " Mars"), ("the lazy dog " * 20 + "A:", " a planet"))
    whole = encode(tokenizer, *pairs, bos=bos)
    with caplog.at_level(logging.WARNING):
        short = encode(tokenizer, *pairs, bos=bos, max_length=16)
    assert "1 of 1 items" in caplog.text
    contexts = set()
    for before, after in zip(whole.choices, short.choices, strict=True):
        assert len(after.tokens) <= 16
        assert after.scored == before.scored
        kept = len(after.tokens) - (bos == "always")
        assert after.tokens[-kept:] == before.tokens[-kept:]
        assert (after.tokens[0] == tokenizer.bos_token_id) == (bos == "always")
        contexts.add(after.tokens[: -after.scored])
    assert len(contexts) == 1, "choices with one context keep one context"
    assert max(len(c.tokens) for c in short.choices) == 16


def test_a_continuation_is_never_cut(tokenizer: Fast) -> None:
    with pytest.raises(UsageError, match=r'item "q" has a choice of \d+ tokens.*max_length 3'):
        encode(tokenizer, ("A:", " the planet is Mars"), ("A:", " b"), max_length=3)


@given(
    context=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30),
    answer=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20),
)
def test_the_seam_loses_nothing(tokenizer: Fast, context: str, answer: str) -> None:
    if not answer.strip() or not context.strip() or "<" in context + answer:
        return
    choice = encode(tokenizer, (context, " " + answer), (context, " other")).choices[0]
    head, tail = choice.tokens[: -choice.scored], choice.tokens[-choice.scored :]
    assert head == plain(tokenizer, context.rstrip())
    whole = plain(tokenizer, context + " " + answer)
    # Where the context alone is a prefix of the whole, the sequence is the whole.
    if whole[: len(head)] == head:
        assert choice.tokens == whole
        assert tokenizer.decode(list(choice.tokens)) == context + " " + answer
    else:
        assert tail == whole[len(head) :] or len(whole) <= len(head)


def test_all_embedded_items_join_without_loss(tokenizer: Fast) -> None:
    items = load_choices("arc_easy", data_dir="embedded")
    for item, encoded in zip(
        items.items, encode_choices(items, tokenizer, Tokenisation()), strict=True
    ):
        assert (encoded.id, encoded.gold) == (item.id, item.gold)
        for choice, tokens in zip(item.choices, encoded.choices, strict=True):
            # As the reference values were made: prompt and choice encoded apart.
            apart = plain(tokenizer, choice.context) + plain(tokenizer, choice.continuation)
            assert tokens.tokens == apart
