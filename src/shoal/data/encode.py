"""Items and documents as tokens: the public names of the encoder.

What is decided about tokens, and why, stands in `shoal.data.tokenisation`.
"""

from shoal.data.choice_tokens import EncodedChoice, EncodedItem, encode_choices
from shoal.data.corpus_tokens import EncodedText, encode_corpus
from shoal.data.tokenisation import Tokenisation

__all__ = [
    "EncodedChoice",
    "EncodedItem",
    "EncodedText",
    "Tokenisation",
    "encode_choices",
    "encode_corpus",
]
