"""Texts at which a continuation ends."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase, StoppingCriteria

DEFAULT_STOPS = ("\n\n", "\nQuestion:")
"""Where a model that continues a plain prompt goes on to something else."""

SLACK = 4
"""Tokens looked at beyond those that a stop text can have; special ones have no text."""


def stop_place(text: str, stops: Sequence[str]) -> int | None:
    r"""Where the first stop text begins, or None.

    White space ends nothing before there is anything else: a model may begin with an empty line.

    Example:
        >>> stop_place("\n\n42\n\nQuestion: next", ("\n\n", "Question:"))
        4
    """
    begin = len(text) - len(text.lstrip())
    places = [text.find(stop, 0 if stop.strip() else begin) for stop in stops]
    return min((place for place in places if place >= 0), default=None)


def text_of(tokens: Sequence[int], stops: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> str:
    """The text of some tokens, without special ones, up to the first stop text."""
    text = decoded(tokens, tokenizer)
    return text[: stop_place(text, stops)]


def decoded(tokens: Sequence[int], tokenizer: PreTrainedTokenizerBase) -> str:
    """The text of some tokens, without special ones."""
    decode: Any = tokenizer.decode
    text: str = decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text


class StopTexts(StoppingCriteria):
    """Ends the rows that hold a stop text, so that decoding ends when all do.

    Args:
        tokenizer: Turns tokens into text.
        stops: The texts, at least one.
        start: Position of the first token that is written.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, stops: Sequence[str], start: int
    ) -> None:
        self.tokenizer, self.stops, self.start = tokenizer, stops, start
        self._tail = max(len(stop.encode()) for stop in stops) + SLACK
        self._done: list[bool] = []

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        """Which rows are done [B]."""
        rows = input_ids[:, self.start :].tolist()
        self._done = self._done or [False] * len(rows)
        for i, row in enumerate(rows):
            self._done[i] = self._done[i] or self._ended(row)
        return torch.tensor(self._done, device=input_ids.device)

    def _ended(self, row: list[int]) -> bool:
        # A stop text is noticed by the end of it, and only then the whole is looked at.
        tail = decoded(row[-self._tail :], self.tokenizer)
        noticed = any(stop in tail for stop in self.stops)
        return noticed and stop_place(decoded(row, self.tokenizer), self.stops) is not None
