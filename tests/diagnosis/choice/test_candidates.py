"""Answer tokens: letters and answers that a user lists."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from shoal.core.errors import UsageError
from shoal.diagnosis.choice.candidates import candidate_tokens, letter_tokens
from shoal.testing.tiny import tiny_tokenizer


def spaced_tokenizer():
    """Puts a space before every text, as SentencePiece does."""
    tokens = ["<unk>", "▁", ":", *"ABCDnoyes", "▁A", "▁B", "▁C", "▁D", "▁:", "no", "▁no"]
    merges = [("▁", "A"), ("▁", "B"), ("▁", "C"), ("▁", "D"), ("▁", ":"), ("n", "o"), ("▁", "no")]
    vocab = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    inner = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    inner.decoder = decoders.Metaspace(prepend_scheme="never")
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>")


def names(tokenizer, tokens):
    return tokenizer.convert_ids_to_tokens(list(tokens))


def test_letters_without_a_space_where_no_token_has_both():
    tokenizer = tiny_tokenizer()
    assert names(tokenizer, letter_tokens(tokenizer, 3)) == ["A", "B", "C"]
    # A letter must not grow together with what it follows.
    whole = tokenizer("Which?\nAnswer:B", add_special_tokens=False)["input_ids"]
    assert letter_tokens(tokenizer, 2, "Which?\nAnswer:")[1] == whole[-1]


def test_letters_with_a_space_where_the_tokenizer_has_them():
    tokenizer = spaced_tokenizer()
    assert names(tokenizer, letter_tokens(tokenizer, 4, ":")) == ["▁A", "▁B", "▁C", "▁D"]


def test_letters_that_are_no_tokens_are_refused():
    with pytest.raises(UsageError, match="A to E are not 5 different single tokens"):
        letter_tokens(spaced_tokenizer(), 5, ":")
    with pytest.raises(UsageError, match="2 to 26"):
        letter_tokens(tiny_tokenizer(), 27)


def test_answers_are_the_tokens_that_they_are_in_text():
    tokenizer = tiny_tokenizer()
    found = candidate_tokens(tokenizer, [" a", "a", "ing"])
    assert names(tokenizer, found) == [" a", "a", "ing"]
    spaced = spaced_tokenizer()
    assert names(spaced, candidate_tokens(spaced, [" A", "A", " no", "no"])) == [
        "▁A",
        "A",
        "▁no",
        "no",
    ]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([" yes", " a"], r"' yes' is not one token .* ' ', 'y', 'es'"),
        (["a", "é"], "'é' is not one token"),
        (["a", ""], "'' is not one token .* none"),
        (["a", "b", "a"], "same token"),
        (["a"], "at least two"),
    ],
)
def test_answers_that_cannot_be_compared_are_refused(texts, message):
    with pytest.raises(UsageError, match=message):
        candidate_tokens(tiny_tokenizer(), texts)


@pytest.mark.real
def test_letters_and_answers_of_a_real_tokenizer(real_dense):
    tokenizer = real_dense.tokenizer
    assert [tokenizer.decode([t]) for t in letter_tokens(tokenizer)] == [" A", " B", " C", " D"]
    found = candidate_tokens(tokenizer, [" yes", " no", "yes"])
    assert [tokenizer.decode([t]) for t in found] == [" yes", " no", "yes"]
