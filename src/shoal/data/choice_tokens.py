"""Multiple-choice items as tokens."""

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shoal.core.errors import UsageError
from shoal.data.items import Choice, ChoiceItem, ChoiceSet
from shoal.data.tokenisation import Tokenisation, token_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EncodedChoice:
    """One choice as tokens.

    Attributes:
        tokens: Context and continuation.
        scored: How many tokens at the end are the continuation; at least one comes before.
        num_bytes: UTF-8 bytes of what is scored, its leading space included.
        num_chars: Characters of the choice without that space; lm-eval's `acc_norm` divides by
            these.
    """

    tokens: tuple[int, ...]
    scored: int
    num_bytes: int
    num_chars: int


@dataclass(frozen=True, slots=True)
class EncodedItem:
    """One item as tokens; choices in the order of the item."""

    id: str
    choices: tuple[EncodedChoice, ...]
    gold: int


def encode_choices(
    choice_set: ChoiceSet,
    tokenizer: "PreTrainedTokenizerBase",
    tokenisation: Tokenisation,
    max_length: int | None = None,
) -> tuple[EncodedItem, ...]:
    """Encode all items.

    A context that is too long loses tokens at its start, after BOS, and never the continuation.
    All choices of an item are cut to the context that fits its longest choice, so that choices
    with one context keep one context.

    Args:
        choice_set: The items.
        tokenizer: The model's tokenizer.
        tokenisation: How to encode.
        max_length: The most tokens per sequence, or None.

    Raises:
        UsageError: If a continuation has no token, or is longer than `max_length` allows.
    """
    prefix = tokenisation.prefix(tokenizer)
    encoded, cut = [], 0
    for item in choice_set.items:
        parts = _split(item, tokenizer, tokenisation, prefix)
        if max_length is not None:
            room = max_length - max(len(continuation) for _, continuation in parts)
            if room < len(prefix) + 1:
                raise UsageError(
                    f'item "{item.id}" has a choice of {max_length - room} tokens, which leaves no '
                    f"room for a context in max_length {max_length}. Raise max_length."
                )
            cut += any(len(context) > room for context, _ in parts)
            parts = [(_left_cut(context, room, prefix), rest) for context, rest in parts]
        encoded.append(_encoded(item, parts))
    if cut:
        _log.warning(
            "%d of %d items of %s had their context cut on the left to fit %s tokens",
            cut,
            len(choice_set),
            choice_set.name,
            max_length,
        )
    return tuple(encoded)


def _split(
    item: ChoiceItem,
    tokenizer: "PreTrainedTokenizerBase",
    tokenisation: Tokenisation,
    prefix: tuple[int, ...],
) -> list[tuple[list[int], list[int]]]:
    """For each choice the tokens of its context and those of its continuation."""
    seams = [_seam(c) for c in item.choices]
    contexts = list(dict.fromkeys(context for context, _ in seams))
    ids = token_ids(tokenizer, [*contexts, *(context + rest for context, rest in seams)])
    alone = dict(zip(contexts, ids, strict=False))
    parts = []
    for (context, continuation), whole in zip(seams, ids[len(contexts) :], strict=True):
        before = alone[context]
        scored = whole[len(before) :] or token_ids(tokenizer, [continuation])[0]
        if not scored:
            raise UsageError(
                f'the continuation {continuation!r} of item "{item.id}" has no token under this '
                "tokenizer. Leave the item out."
            )
        parts.append(([*(prefix if before else tokenisation.start(tokenizer)), *before], scored))
    return parts


def _seam(choice: Choice) -> tuple[str, str]:
    """Context and continuation with the white space between them on the continuation's side."""
    context = choice.context.rstrip()
    return context, choice.context[len(context) :] + choice.continuation


def _left_cut(context: list[int], room: int, prefix: tuple[int, ...]) -> list[int]:
    if len(context) <= room:
        return context
    return [*prefix, *context[len(context) - room + len(prefix) :]]


def _encoded(item: ChoiceItem, parts: list[tuple[list[int], list[int]]]) -> EncodedItem:
    choices = []
    for choice, (context, continuation) in zip(item.choices, parts, strict=True):
        answer = choice.continuation.removeprefix(" ")
        choices.append(
            EncodedChoice(
                tokens=(*context, *continuation),
                scored=len(continuation),
                num_bytes=len(choice.continuation.encode()),
                num_chars=len(answer),
            )
        )
    return EncodedItem(item.id, tuple(choices), item.gold)
