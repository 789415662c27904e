import logging
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from shoal.core.errors import UsageError
from shoal.data import Corpus, EncodedText, Tokenisation, encode_corpus, load_corpus
from shoal.data.corpus_tokens import first_tokens

Fast = PreTrainedTokenizerFast
WORDS = "It was the best of times, it was the worst of times.\n"


def corpus(*documents: str) -> Corpus:
    return Corpus.of("c", "file", documents, "file c.txt")


def encode(given_corpus: Corpus, tokenizer: Fast, **options: Any) -> tuple[EncodedText, ...]:
    return encode_corpus(given_corpus, tokenizer, Tokenisation(), **options)


def plain(tokenizer: Fast, *texts: str) -> list[int]:
    return list(chain.from_iterable(tokenizer.encode(t, add_special_tokens=False) for t in texts))


def joined(blocks: tuple[EncodedText, ...]) -> list[int]:
    return list(chain.from_iterable(b.tokens for b in blocks))


def test_blocks_are_consecutive_over_documents(tokenizer: Fast) -> None:
    documents = (WORDS, "the lazy dog. ", WORDS * 3)
    whole = plain(tokenizer, *documents)
    blocks = encode(corpus(*documents), tokenizer, length=10)
    assert joined(blocks) == whole[: len(whole) // 10 * 10]
    assert {b.scored for b in blocks} == {9}
    assert encode(corpus(*documents), tokenizer, length=10, num_blocks=3) == blocks[:3]


def test_bos_starts_every_block_and_counts(bos_tokenizer: Fast) -> None:
    blocks = encode(corpus(WORDS * 5), bos_tokenizer, length=10, num_blocks=4)
    assert {b.tokens[0] for b in blocks} == {bos_tokenizer.bos_token_id}
    assert {len(b.tokens) for b in blocks} == {10}
    body = list(chain.from_iterable(b.tokens[1:] for b in blocks))
    assert body == plain(bos_tokenizer, WORDS * 5)[:36]


def test_random_blocks_are_drawn_without_replacement(tokenizer: Fast) -> None:
    text = "".join(f"{i} {WORDS}" for i in range(40))
    every = encode(corpus(text), tokenizer, length=16)
    drawn = encode(corpus(text), tokenizer, length=16, num_blocks=12, seed=1)
    assert len(drawn) == 12
    assert len({b.tokens for b in drawn}) == 12
    assert set(drawn) <= set(every)
    assert drawn == encode(corpus(text), tokenizer, length=16, num_blocks=12, seed=1)
    assert drawn != encode(corpus(text), tokenizer, length=16, num_blocks=12, seed=2)


def test_short_documents_cannot_hang_the_sampling(tokenizer: Fast) -> None:
    many = corpus(*["dog. "] * 50)
    assert len(encode(many, tokenizer, length=20, num_blocks=2, seed=0)) == 2


def test_too_short_for_one_block(tokenizer: Fast) -> None:
    count = len(plain(tokenizer, "the dog"))
    with pytest.raises(UsageError, match=rf"file c.txt is too short: it has {count} tokens"):
        encode(corpus("the dog"), tokenizer, length=100)


def test_fewer_blocks_than_asked_for(tokenizer: Fast, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        blocks = encode(corpus(WORDS * 2), tokenizer, length=8, num_blocks=1000)
    assert 0 < len(blocks) < 1000
    assert f"only {len(blocks)} of the 1000 blocks" in caplog.text


def test_documents_stay_alone(bos_tokenizer: Fast) -> None:
    blocks = encode(corpus("", "the dog", WORDS * 9), bos_tokenizer, length=12, packing="documents")
    start = bos_tokenizer.bos_token_id
    assert [list(b.tokens) for b in blocks] == [
        [start, *plain(bos_tokenizer, "the dog")],
        [start, *plain(bos_tokenizer, WORDS)[:11]],
    ]
    assert [b.scored for b in blocks] == [len(b.tokens) - 1 for b in blocks]


def test_some_documents(tokenizer: Fast) -> None:
    texts = [f"{i} dogs" for i in range(10)]
    first = encode(corpus(*texts), tokenizer, length=50, num_blocks=3, packing="documents")
    assert [tokenizer.decode(list(b.tokens)) for b in first] == texts[:3]
    drawn = encode(corpus(*texts), tokenizer, length=50, num_blocks=3, packing="documents", seed=0)
    assert len({b.tokens for b in drawn}) == 3


def test_no_document_has_two_tokens(tokenizer: Fast) -> None:
    with pytest.raises(UsageError, match="no document has the two tokens"):
        encode(corpus("a", "b"), tokenizer, length=5, packing="documents")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 1}, "the block length is 1; it must be at least 2"),
        ({"length": 8, "num_blocks": 0}, "0 blocks were asked for"),
        ({"length": 8, "packing": "loose"}, 'unknown packing "loose"'),
    ],
)
def test_bad_arguments(tokenizer: Fast, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        encode(corpus(WORDS), tokenizer, **options)


class Counting:
    """A tokenizer that counts the characters it is given."""

    bos_token_id = eos_token_id = None

    def __init__(self, inner: Fast) -> None:
        self.inner, self.seen = inner, 0

    def __call__(self, texts: list[str], **options: Any) -> Any:
        self.seen += sum(map(len, texts))
        return self.inner(texts, **options)


@pytest.mark.parametrize("text", [WORDS * 20_000, "x" * 1_000_000], ids=["words", "one word"])
def test_a_huge_document_is_not_read_whole(tokenizer: Fast, text: str) -> None:
    counting = Counting(tokenizer)
    blocks = encode(corpus(text), counting, length=64, num_blocks=4)  # type: ignore[arg-type]
    assert len(blocks) == 4
    assert counting.seen < 20_000


@given(
    words=st.lists(st.sampled_from([" the", "dog", "\n", "  ", " é", "."]), min_size=1),
    repeat=st.integers(1, 60),
    count=st.integers(1, 300),
)
def test_part_of_a_document_gives_the_tokens_of_the_whole(
    tokenizer: Fast, words: list[str], repeat: int, count: int
) -> None:
    text = "".join(words) * repeat
    assert first_tokens(text, count, tokenizer) == plain(tokenizer, text)[:count]


@pytest.mark.parametrize(("length", "num_blocks"), [(512, 8), (2048, 16), (7, 3)])
def test_wikitext_blocks_are_those_of_the_whole_file(
    shared_data: Path, tokenizer: Fast, length: int, num_blocks: int
) -> None:
    real = load_corpus("wikitext2", data_dir=shared_data, split="validation")
    blocks = encode(real, tokenizer, length=length, num_blocks=num_blocks)
    assert len(blocks) == num_blocks
    assert joined(blocks) == plain(tokenizer, real.documents[0])[: length * num_blocks]
