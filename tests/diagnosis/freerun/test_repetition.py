"""Repetition of known texts, and against slow definitions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.diagnosis.freerun.repetition import (
    LOOP_TOKENS,
    LOOP_TURNS,
    distinct_n,
    longest_repeat,
    looping,
)

TEXTS = st.lists(st.integers(0, 3), max_size=24)


def slow_longest(tokens):
    n = len(tokens)
    for length in range(n - 1, 0, -1):
        spans = [tuple(tokens[i : i + length]) for i in range(n - length + 1)]
        if len(set(spans)) < len(spans):
            return length
    return 0


def slow_looping(tokens):
    """Some tail of enough tokens that has a period, at least so many times."""
    n = len(tokens)
    for unit in range(1, n + 1):
        least = max(LOOP_TURNS * unit, LOOP_TOKENS)
        tail = tokens[n - least :]
        if least <= n and all(tail[i] == tail[i - unit] for i in range(unit, least)):
            return True
    return False


@pytest.mark.parametrize(
    ("tokens", "n", "expected"),
    [
        ([1, 2, 1, 2], 1, 0.5),
        ([1, 2, 1, 2], 2, 2 / 3),
        ([1, 2, 1, 2], 3, 1.0),
        ([7] * 10, 2, 1 / 9),
        ([7], 2, 1.0),
        ([], 1, 1.0),
    ],
)
def test_distinct_n_of_known_texts(tokens, n, expected):
    assert distinct_n(tokens, n) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([1, 2, 3, 9, 1, 2, 3], 3 / 7),
        ([5] * 8, 7 / 8),
        ([1, 2, 1, 2, 1], 3 / 5),
        ([1, 2, 3], 0.0),
        ([1], 0.0),
        ([], 0.0),
    ],
)
def test_longest_repeat_of_known_texts(tokens, expected):
    assert longest_repeat(tokens) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([7] * 10, True),
        ([7] * 9, False),
        ([1, 2] * 5, True),
        ([1, 2] * 4, False),
        ([1, 2, 3, 4] * 3, True),
        ([1, 2, 3, 4] * 3 + [1, 2], True),
        ([1, 2, 3, 4] * 2 + [1, 2, 3], False),
        (list(range(50)) + [1, 2, 3, 4, 5] * 3, True),
        ([7] * 30 + [0], False),
        ([7] * 30 + [1, 2, 3], False),
        ([], False),
    ],
)
def test_looping_of_known_texts(tokens, expected):
    assert looping(tokens) is expected


@given(TEXTS)
def test_as_the_slow_definitions_say(tokens):
    assert longest_repeat(tokens) * len(tokens) == pytest.approx(slow_longest(tokens))
    assert looping(tokens) == slow_looping(tokens)


@given(TEXTS, st.lists(st.integers(0, 9), min_size=1, max_size=6))
def test_a_unit_ten_times_over_loops(start, unit):
    text = start + unit * 10
    assert looping(text)
    assert longest_repeat(text) >= 9 * len(unit) / len(text)


@given(st.lists(st.integers(), max_size=60, unique=True).map(lambda t: [x % 2**31 for x in t]))
def test_different_tokens_repeat_nothing(tokens):
    tokens = list(dict.fromkeys(tokens))
    assert [distinct_n(tokens, n) for n in (1, 2, 3)] == [1.0, 1.0, 1.0]
    assert longest_repeat(tokens) == 0.0
    assert not looping(tokens)
