"""A tokenizer of exactly 128 tokens that reads any text."""

from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")
"""Tokens 0 to 3, as the configs of the tiny models name them."""

_CHARACTERS = ("\n", *map(chr, range(32, 127)))
_MERGES = (
    *((" ", c) for c in "tasowbcm"),
    *(("h", "e"), ("i", "n"), ("r", "e"), ("o", "n"), (" t", "he"), ("e", "r"), ("a", "t")),
    *(("o", "u"), ("e", "n"), ("i", "s"), ("o", "r"), ("in", "g"), ("a", "n"), ("n", "d")),
    *(("i", "t"), ("e", "s"), (" o", "f"), ("e", "d"), (" a", "nd"), ("l", "l")),
)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Build the tokenizer, offline.

    Printable ASCII and newlines survive a round trip; any other character becomes `<unk>`.
    """
    tokens = (*SPECIAL, *_CHARACTERS, *(left + right for left, right in _MERGES))
    inner = Tokenizer(
        models.BPE(
            vocab={token: i for i, token in enumerate(tokens)},
            merges=list(_MERGES),
            unk_token="<unk>",
        )
    )
    inner.pre_tokenizer = pre_tokenizers.Split(Regex(r" ?[A-Za-z]+|[^A-Za-z]"), "isolated")
    inner.decoder = decoders.Fuse()
    fast: Any = PreTrainedTokenizerFast
    tokenizer: PreTrainedTokenizerFast = fast(
        tokenizer_object=inner,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        unk_token="<unk>",
        clean_up_tokenization_spaces=False,
        model_max_length=128,
    )
    return tokenizer
