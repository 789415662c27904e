"""Prompts to continue, from data of any kind."""

from shoal.data.encode import Tokenisation, encode_corpus
from shoal.data.items import ChoiceSet, Corpus, PromptItem, PromptSet
from shoal.models.dense import DenseModel
from shoal.objectives.prompts import encode_prompts
from shoal.objectives.text import DEFAULT_TEXTS, PASSAGES


def prompts_of(
    data: Corpus | ChoiceSet | PromptSet,
    dense: DenseModel,
    tokenisation: Tokenisation,
    *,
    limit: int | None,
    length: int,
    new_tokens: int,
    chat: bool,
    skip_long: bool = False,
) -> list[tuple[int, ...]]:
    """The tokens of prompts as they are, of the context of a first choice, or of blocks of a text.

    Args:
        data: Where they come from.
        dense: The model that will read them.
        tokenisation: The policy for special tokens.
        limit: At most so many.
        length: Tokens of a block of text.
        new_tokens: Tokens that will follow each.
        chat: Whether a prompt is what a user says in a chat.
        skip_long: Leave out prompts that are too long for the model.

    Raises:
        UsageError: If the model has no chat template, or a prompt is too long for it.
    """
    if isinstance(data, Corpus):
        tokenizer = dense.require_tokenizer()
        blocks = encode_corpus(
            data,
            tokenizer,
            tokenisation,
            length=length,
            num_blocks=limit or DEFAULT_TEXTS,
            packing="documents" if data.name in PASSAGES else "packed",
        )
        if not chat:
            return [block.tokens for block in blocks]
        texts = [tokenizer.decode(b.tokens, skip_special_tokens=True) for b in blocks]
        # A block may begin or end within a character.
        items = [PromptItem(f"{i}", t.strip("\ufffd")) for i, t in enumerate(texts)]
    elif isinstance(data, ChoiceSet):
        # White space at a seam belongs to what follows, as where choices are scored.
        items = [PromptItem(i.id, i.choices[0].context.rstrip()) for i in data.items]
    else:
        items = list(data.items)
    return encode_prompts(
        items[:limit],
        dense,
        tokenisation,
        new_tokens=new_tokens,
        chat=chat,
        skip_long=skip_long,
    )
