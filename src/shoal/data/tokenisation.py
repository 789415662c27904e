"""The one place where text becomes tokens, and the record of how.

Decisions, once for all of shoal:

* Special tokens are never added except one BOS, and that only where the tokenizer itself adds it
  ("auto"), or as asked ("always", "never").
* A choice is encoded as lm-eval does: white space at the end of the context moves to the
  continuation; context + continuation is encoded as a whole, the context also alone, and the
  continuation's tokens are those of the whole beyond the length of the context.
* Where merging leaves the continuation no token, that choice is encoded in two parts.
* An empty context becomes one token, BOS or else EOS, since the first token needs something before.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from shoal.core.errors import UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_PROBE = "a"


@dataclass(frozen=True)
class Tokenisation:
    """How text is encoded.

    Attributes:
        bos: "auto" puts BOS first where the tokenizer does so itself.
    """

    bos: Literal["auto", "always", "never"] = "auto"

    def __post_init__(self) -> None:
        if self.bos not in ("auto", "always", "never"):
            raise UsageError(f'unknown BOS policy "{self.bos}". Known: always, auto, never.')

    def prefix(self, tokenizer: "PreTrainedTokenizerBase") -> tuple[int, ...]:
        """The tokens that start every sequence: BOS or none.

        Raises:
            UsageError: If BOS is asked for and the tokenizer has none.
        """
        bos = tokenizer.bos_token_id
        if self.bos == "never" or (self.bos == "auto" and bos is None):
            return ()
        if bos is None:
            raise UsageError(
                'the BOS policy is "always", but the tokenizer has no BOS token. '
                'Use "auto" or "never".'
            )
        if self.bos == "always":
            return (bos,)
        plain = token_ids(tokenizer, [_PROBE])[0]
        own = token_ids(tokenizer, [_PROBE], special=True)[0]
        # What a tokenizer puts at the end (EOS) is no concern here.
        return (bos,) if own[: len(plain) + 1] == [bos, *plain] else ()

    def start(self, tokenizer: "PreTrainedTokenizerBase") -> tuple[int, ...]:
        """The tokens that stand for an empty context.

        Raises:
            UsageError: If the tokenizer has neither BOS nor EOS.
        """
        for token in (tokenizer.bos_token_id, tokenizer.eos_token_id):
            if token is not None:
                return (int(token),)
        raise UsageError(
            "an empty context needs a BOS or an EOS token, and the tokenizer has neither. "
            "Give every item a context."
        )

    def describe(self, tokenizer: "PreTrainedTokenizerBase") -> dict[str, Any]:
        """The JSON form for a plan: the policy and what it means for this tokenizer."""
        prefix = self.prefix(tokenizer)
        return {
            "bos_policy": self.bos,
            "bos": bool(prefix),
            "bos_id": prefix[0] if prefix else None,
            "seam": "joint, as lm-eval",
            "empty_continuation": "encoded in two parts",
            "empty_context": "BOS, else EOS",
            "other_special_tokens": False,
        }


def token_ids(
    tokenizer: "PreTrainedTokenizerBase", texts: list[str], *, special: bool = False
) -> list[list[int]]:
    """The tokens of some texts, without special tokens unless asked."""
    # verbose=False: long texts are cut into blocks later, so the warning about the model's
    # longest input would be false.
    try:
        encoded = tokenizer(texts, add_special_tokens=special, verbose=False)
    except (TypeError, UnicodeEncodeError) as error:
        raise UsageError(
            "a text cannot be tokenised: it holds characters that are not valid Unicode (half of a "
            "surrogate pair). Clean the data."
        ) from error
    ids: list[list[int]] = encoded["input_ids"]
    return ids
