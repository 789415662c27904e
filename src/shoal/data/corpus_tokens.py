"""Text as blocks of tokens.

"packed" puts the tokens of all documents one after another, with nothing between, and cuts them
into blocks of equal length; "documents" keeps each document alone. Work is bounded by what is
asked for: of a long document only the part that is needed is read, and nothing ever waits for a
document of some length. Random blocks (`seed`) are drawn from the whole corpus, so the whole corpus
is encoded once.
"""

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from shoal.core.errors import UsageError
from shoal.data.items import Corpus
from shoal.data.tokenisation import Tokenisation, token_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_log = logging.getLogger(__name__)

CHARS_PER_TOKEN = 6
"""Characters read per token needed, at first; English text has about four."""

MARGIN = 64
"""Tokens at the end of a partly read document that are not trusted: the cut may change them."""


@dataclass(frozen=True, slots=True)
class EncodedText:
    """One block or document as tokens; the last `scored` of them are predicted from those before.

    All tokens but the first are scored.
    """

    tokens: tuple[int, ...]
    scored: int


def encode_corpus(
    corpus: Corpus,
    tokenizer: "PreTrainedTokenizerBase",
    tokenisation: Tokenisation,
    *,
    length: int,
    num_blocks: int | None = None,
    packing: Literal["packed", "documents"] = "packed",
    seed: int | None = None,
) -> tuple[EncodedText, ...]:
    """Encode a corpus.

    Args:
        corpus: The documents.
        tokenizer: The model's tokenizer.
        tokenisation: How to encode; BOS, where there is one, starts every block and counts.
        length: Tokens per block; for single documents the most tokens of one.
        num_blocks: How many blocks or documents, or None for all.
        packing: "packed" or "documents".
        seed: None takes the first blocks; a number draws them at random without replacement.

    Raises:
        UsageError: If an argument is out of range, or the text is too short for one block.
    """
    if packing not in ("packed", "documents"):
        raise UsageError(f'unknown packing "{packing}". Known: documents, packed.')
    if length < 2:
        raise UsageError(f"the block length is {length}; it must be at least 2 tokens.")
    if num_blocks is not None and num_blocks < 1:
        raise UsageError(f"{num_blocks} blocks were asked for; give at least 1, or None for all.")
    prefix = tokenisation.prefix(tokenizer)
    make = _packed if packing == "packed" else _documents
    blocks = make(corpus, tokenizer, prefix, length, num_blocks, seed)
    if num_blocks is not None and len(blocks) < num_blocks:
        _log.warning(
            "%s has only %d of the %d blocks of %d tokens that were asked for",
            corpus.origin,
            len(blocks),
            num_blocks,
            length,
        )
    return tuple(EncodedText(tokens, len(tokens) - 1) for tokens in blocks)


def first_tokens(text: str, count: int, tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """The first tokens of a text, the same as if it were encoded whole, in bounded work.

    Args:
        text: A document of any length.
        count: How many tokens are needed.
        tokenizer: The model's tokenizer.

    Returns:
        At most `count` tokens; fewer only if the text has fewer.
    """
    size = CHARS_PER_TOKEN * (count + MARGIN)
    while size < len(text):
        tokens = token_ids(tokenizer, [text[: _cut(text, size)]])[0]
        if len(tokens) >= count + MARGIN:
            return tokens[:count]
        size *= 2
    return token_ids(tokenizer, [text])[0][:count]


def _cut(text: str, size: int) -> int:
    """The last line end, else the last space, in the second half of the text up to `size`."""
    for mark in "\n ":
        place = text.rfind(mark, size // 2, size)
        if place > 0:
            return place
    return size


def _packed(
    corpus: Corpus,
    tokenizer: "PreTrainedTokenizerBase",
    prefix: tuple[int, ...],
    length: int,
    num_blocks: int | None,
    seed: int | None,
) -> list[tuple[int, ...]]:
    body = length - len(prefix)
    needed = None if num_blocks is None or seed is not None else num_blocks * body
    stream: list[int] = []
    for document in corpus.documents:
        if needed is None:
            stream += token_ids(tokenizer, [document])[0]
        elif len(stream) < needed:
            stream += first_tokens(document, needed - len(stream), tokenizer)
        else:
            break
    total = len(stream) // body
    if total == 0:
        raise UsageError(
            f"{corpus.origin} is too short: it has {len(stream)} tokens, fewer than the {body} of "
            f"one block of length {length}. Use shorter blocks or more text."
        )
    order = _order(total, num_blocks, seed)
    return [(*prefix, *stream[i * body : (i + 1) * body]) for i in order]


def _documents(
    corpus: Corpus,
    tokenizer: "PreTrainedTokenizerBase",
    prefix: tuple[int, ...],
    length: int,
    num_blocks: int | None,
    seed: int | None,
) -> list[tuple[int, ...]]:
    blocks: list[tuple[int, ...]] = []
    for i in _order(len(corpus.documents), None, seed):
        if len(blocks) == num_blocks:
            break
        body = first_tokens(corpus.documents[i], length - len(prefix), tokenizer)
        # A single token has nothing before it to be predicted from.
        if len(prefix) + len(body) >= 2:
            blocks.append((*prefix, *body))
    if not blocks:
        raise UsageError(
            f"{corpus.origin} is too short: no document has the two tokens that scoring needs."
        )
    return blocks


def _order(total: int, count: int | None, seed: int | None) -> list[int]:
    places = np.arange(total) if seed is None else np.random.default_rng(seed).permutation(total)
    return [int(i) for i in places[:count]]
