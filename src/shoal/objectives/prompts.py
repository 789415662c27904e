"""Prompts as tokens, and multiple-choice items as prompts."""

import re
import string
from collections.abc import Sequence
from typing import Any

from shoal.core.errors import UsageError
from shoal.data.encode import Tokenisation
from shoal.data.items import ChoiceItem, PromptItem
from shoal.data.tokenisation import token_ids
from shoal.models.dense import DenseModel
from shoal.models.discover import max_positions

# What ends the question of the known tasks, and comes after the choices here.
_CUE = re.compile(r"\s*(?:\bAnswer|(?<=\n)A):\s*\Z|\s+\Z")


def lettered(item: ChoiceItem) -> PromptItem:
    """A multiple-choice item as a question whose answer is the letter of a choice.

    Example:
        >>> from shoal.data import Choice, ChoiceItem
        >>> context = "Question: What rusts?" + chr(10) + "Answer:"
        >>> item = lettered(ChoiceItem("7", (Choice(context, " air"), Choice(context, " iron")), 1))
        >>> print(item.prompt, item.answers)
        Question: What rusts?
        A. air
        B. iron
        Answer: ('B',)

    Raises:
        UsageError: If the choices have different contexts, or are too many.
    """
    contexts = {choice.context for choice in item.choices}
    if len(contexts) > 1:
        raise UsageError(
            f'the choices of item "{item.id}" have different contexts, as in winogrande, so they '
            "cannot be asked for by letter. Use the objective accuracy or margin."
        )
    letters = string.ascii_uppercase
    if len(item.choices) > len(letters):
        raise UsageError(
            f'item "{item.id}" has {len(item.choices)} choices, more than there are letters. '
            "Use the objective accuracy or margin."
        )
    question = _CUE.sub("", contexts.pop())
    pairs = zip(letters, item.choices, strict=False)
    lines = [f"{letter}. {choice.continuation.strip()}" for letter, choice in pairs]
    prompt = "\n".join([*filter(None, [question]), *lines, "Answer:"])
    return PromptItem(item.id, prompt, (letters[item.gold],))


def encode_prompts(
    items: Sequence[PromptItem],
    dense: DenseModel,
    tokenisation: Tokenisation,
    *,
    new_tokens: int,
    chat: bool,
    skip_long: bool = False,
) -> list[tuple[int, ...]]:
    """The tokens of prompts, with one BOS where the policy wants one.

    Args:
        items: The prompts.
        dense: The model.
        tokenisation: The policy for special tokens.
        new_tokens: Tokens that will follow each.
        chat: Whether a prompt is what a user says in a chat.
        skip_long: Leave out prompts that are too long for the model.

    Raises:
        UsageError: If the model has no chat template, or a prompt is too long for it.
    """
    tokenizer = dense.require_tokenizer()
    prefix = list(tokenisation.prefix(tokenizer))
    texts = [item.prompt for item in items]
    if chat:
        texts = [_chat(text, dense) for text in texts]
    encoded = []
    positions = max_positions(dense.config)
    for item, ids in zip(items, token_ids(tokenizer, texts), strict=True):
        # Most templates write the BOS themselves.
        tokens = ids if ids[: len(prefix)] == prefix else [*prefix, *ids]
        if not tokens:
            tokens = list(tokenisation.start(tokenizer))
        # The last token that is written is never read.
        if positions is not None and len(tokens) + new_tokens - 1 > positions:
            if skip_long:
                continue
            raise UsageError(
                f'the prompt of item "{item.id}" has {len(tokens)} tokens; with {new_tokens} new '
                f"tokens it does not fit the {positions} positions of {dense.source.id}. Ask for "
                "fewer new tokens, or leave the item out."
            )
        encoded.append(tuple(tokens))
    return encoded


def _chat(text: str, dense: DenseModel) -> str:
    tokenizer: Any = dense.require_tokenizer()
    if not getattr(tokenizer, "chat_template", None):
        raise UsageError(
            f"{dense.source.id} has no chat template. Leave chat out; a base model continues plain "
            "prompts."
        )
    # Only here, since jinja2 is needed for chat alone.
    from jinja2.exceptions import TemplateError

    messages = [{"role": "user", "content": text}]
    try:
        filled: str = tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
    except TemplateError as error:
        raise UsageError(f"the chat template of {dense.source.id} fails: {error}.") from error
    return filled
