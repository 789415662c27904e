"""How much a text repeats itself: the marks of a model that has collapsed.

A text is a sequence of tokens. Its copy, moved by some steps, agrees with it in runs; the longest
run over all moves is the longest repeated span, and a run that reaches the text's end is a loop.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

LOOP_TURNS = 3
"""Times that a unit must occur, one after another, to be called a loop."""

LOOP_TOKENS = 10
"""Fewest tokens of a loop: a single token must come ten times, a pair five times."""


def distinct_n(tokens: Sequence[int], n: int) -> float:
    """Different n-grams over n-grams (Li et al. 2016, 1510.03055); 1 for texts without any."""
    grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return len(set(grams)) / len(grams) if grams else 1.0


def longest_repeat(tokens: Sequence[int]) -> float:
    """Length of the longest span that occurs twice, over the length of the text.

    The two may overlap, so a text that is nothing but a loop comes near 1. Quadratic in the length.
    """
    text = np.asarray(tokens)
    longest = 0
    for moved in range(1, len(text)):
        if len(text) - moved <= longest:
            break
        longest = max(longest, _longest_run(text[moved:] == text[:-moved]))
    return longest / len(text) if len(text) else 0.0


def looping(tokens: Sequence[int]) -> bool:
    """Whether a text ends in a loop: `LOOP_TURNS` turns or more, of `LOOP_TOKENS` tokens together.

    The last turn may be cut short after those. A text that ended by EOS has left its loop.
    """
    text = np.asarray(tokens)
    for unit in range(1, len(text) // LOOP_TURNS + 1):
        agrees = (text[unit:] == text[:-unit])[::-1]
        run = len(agrees) if agrees.all() else int(agrees.argmin())
        if run + unit >= max(LOOP_TURNS * unit, LOOP_TOKENS):
            return True
    return False


def _longest_run(agrees: NDArray[np.bool_]) -> int:
    """Length of the longest run of True."""
    breaks = np.flatnonzero(~agrees)
    edges = np.concatenate([[-1], breaks, [len(agrees)]])
    return int(np.diff(edges).max()) - 1
