"""Answer tokens: the letters of options, or what a user lists."""

import string
from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from shoal.core.errors import UsageError
from shoal.data.tokenisation import token_ids

CUE = "Answer:"
"""What an answer is taken to follow where no prompt is given."""

_ANCHOR = ":"


def letter_tokens(
    tokenizer: PreTrainedTokenizerBase,
    count: int = 4,
    prompt: str = CUE,
    *,
    spaced: bool = True,
) -> tuple[int, ...]:
    """The tokens that name the first options of a question, as the model would write them.

    Letters have a leading space where that gives one token each (" A"), and none otherwise; the
    other way round where an answer does not follow a space.

    Args:
        tokenizer: The tokenizer.
        count: How many letters, 2 to 26.
        prompt: What they follow.
        spaced: Whether to prefer letters with a space.

    Raises:
        UsageError: If the count is out of range, or neither way gives one token per letter.
    """
    if not 2 <= count <= len(string.ascii_uppercase):
        raise UsageError(f"{count} letters were asked for; there can be 2 to 26.")
    letters, unknown = string.ascii_uppercase[:count], tokenizer.unk_token_id
    for lead in (" ", "") if spaced else ("", " "):
        tails = _after(tokenizer, prompt, [lead + letter for letter in letters])
        tokens = tuple(t for t, *more in filter(None, tails) if not more and t != unknown)
        if len(set(tokens)) == count:
            return tokens
    raise UsageError(
        f"the letters A to {letters[-1]} are not {count} different single tokens of this tokenizer "
        f"after {prompt[-20:]!r}, with a leading space or without. Name the answer tokens yourself."
    )


def candidate_tokens(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> tuple[int, ...]:
    """The tokens of answers that a user lists, leading spaces included, such as " yes" and " no".

    Args:
        tokenizer: The tokenizer.
        texts: The answers, at least two; each is one token, and no two are the same.

    Raises:
        UsageError: If they are not.
    """
    if len(texts) < 2:
        raise UsageError(
            f"{len(texts)} answer token(s) were given; a comparison needs at least two."
        )
    found: dict[int, str] = {}
    for text in texts:
        token = _single(tokenizer, text)
        if token in found:
            raise UsageError(
                f"the answers {found[token]!r} and {text!r} are the same token. Give each once."
            )
        found[token] = text
    return tuple(found)


def _single(tokenizer: PreTrainedTokenizerBase, text: str) -> int:
    # Tokenizers that put a space before every text show their tokens only behind another one.
    alone = token_ids(tokenizer, [text])[0]
    tokens = next((t for t in (*_after(tokenizer, _ANCHOR, [text]), alone) if len(t) == 1), alone)
    if len(tokens) != 1 or tokens[0] == tokenizer.unk_token_id:
        parts = ", ".join(repr(tokenizer.decode([t])) for t in tokens) or "none"
        raise UsageError(
            f"the answer {text!r} is not one token of this tokenizer; its tokens are {parts}. "
            "Give answers of one token, with the leading space that they have in text."
        )
    return tokens[0]


def _after(
    tokenizer: PreTrainedTokenizerBase, context: str, texts: Sequence[str]
) -> list[list[int]]:
    """Tokens of each text behind a context; none where the two share a token."""
    before, *whole = token_ids(tokenizer, [context, *(context + text for text in texts)])
    return [w[len(before) :] if w[: len(before)] == before else [] for w in whole]
