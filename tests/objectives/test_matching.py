import string
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.objectives.matching import (
    all_numbers,
    final_number,
    is_right,
    normalised,
    plain_number,
    starts_with,
)

values = st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9))
words = st.lists(st.sampled_from(["leg", "iron", "mars", "two", "blue"]), min_size=1, max_size=4)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("the answer is 42.", "42"),
        ("3 + 4 = 7", "7"),
        ("it costs $1,234.50, he said.", "1234.50"),
        ("a rise of 12%", "12"),
        ("so -5", "-5"),
        ("so −5", "-5"),
        ("-$5 in all", "-5"),
        ("10-5", "5"),
        ("(3)-2", "2"),
        ("pages 3-4", "4"),
        ("half, or .5", "0.5"),
        ("1,2", "2"),
        ("1234,567", "567"),
        (r"first 7, then \boxed{42} of 50", "42"),
        (r"\boxed{1} and \boxed{\text{about } 2{,}5 = 3}", "3"),
        (r"cut off \boxed{42", "42"),
        (r"\boxed{\$1,000}", "1000"),
        ("#### 6\n#### 42 apples, 3 left\n\n8", "42"),
        ("####\n$ 3", "3"),
        (r"#### 6 \boxed{7}", "7"),
        ("9" * 40, "9" * 40),
    ],
)
def test_the_number_that_counts(text, value):
    assert final_number(text) == Decimal(value)


@pytest.mark.parametrize("text", ["", "none", "7 ####", r"\boxed{none} 7", "- . ,"])
def test_no_number(text):
    assert final_number(text) is None
    assert not is_right("numeric", ["7"], text)


@given(values)
def test_a_number_is_found_however_it_is_written(value):
    for written in (f"{value}", f"{value:,}", f"{value}%", f"{value}.", f"{value}000"):
        assert plain_number(written) == value
        assert final_number(f"we had 17 of them and so {written}") == value
        assert final_number(f"17 #### {written}\n3") == value
        assert final_number(rf"\boxed{{{written}}} 3") == value
    assert is_right("numeric", [str(value)], f"it is {value}0")
    assert not is_right("numeric", [str(value)], f"it is {value + 1}")


@given(st.text())
def test_any_text_is_judged(text):
    for match in ("numeric", "text", "prefix", "letter"):
        assert is_right(match, ["42", "the"], text) in (True, False)
    assert is_right("text", [text], text)
    assert is_right("prefix", [text], text)


def test_value_not_spelling():
    assert is_right("numeric", ["576.0"], " He needs 576 tiles.")
    assert not is_right("numeric", ["576.0"], "576.01")
    # Exact: as floats these would be equal.
    assert not is_right("numeric", ["9007199254740993"], "9007199254740992")


def test_plain_numbers():
    assert all_numbers([["42"], ["-1,000", "$5", "3.5%"]])
    assert not all_numbers([["42"], ["42 apples"]])
    assert plain_number("1 2") is None
    assert plain_number("1,2") is None


@given(words, st.sampled_from(string.punctuation), st.sampled_from(["a", "an", "the"]))
def test_text_ignores_case_punctuation_articles_and_space(answer, mark, article):
    written = f" {article.upper()}  {mark}{'  '.join(answer).title()}{mark}\n"
    assert is_right("text", ["x", " ".join(answer)], written)
    assert not is_right("text", [" ".join(answer)], written + " more")
    assert normalised(normalised(written)) == normalised(written)


def test_text_of_nothing_but_what_is_ignored():
    assert is_right("text", ["the"], " The.")
    assert not is_right("text", ["the"], "")
    assert is_right("text", ["!"], "!")
    assert not is_right("text", ["!"], "?")


@given(words, words, st.sampled_from([" ", ". ", ", ", "\n", ")", "-"]))
def test_prefix_ends_at_a_word(answer, more, between):
    start = " ".join(answer)
    assert starts_with(start, f" ({start.upper()}{between}{' '.join(more)}")
    assert not starts_with(start, start + "s " + " ".join(more))
    assert not starts_with(start, "x " + start)


@pytest.mark.parametrize("text", ["B", " B.", "(B) iron", "**B**", "B\n", "B: the iron"])
def test_letters(text):
    assert is_right("letter", ["B"], text)
    assert not is_right("letter", ["A"], text)


@pytest.mark.parametrize("text", ["a leg", "Apple", "", "The answer is A", "A1", "B A"])
def test_what_is_no_letter(text):
    assert not is_right("letter", ["A"], text)


@pytest.mark.parametrize(
    ("answer", "text", "right"),
    [
        ("35", "-3.5, -3.5", False),
        ("-3.5", "it is -3.50.", True),
        ("35", " 35 apples", True),
        ("zzz", "Zzz!", True),
        ("zzz", "35", False),
    ],
)
def test_auto_judges_each_answer_by_what_it_is(answer: str, text: str, right: bool) -> None:
    assert is_right("auto", [answer], text) is right


def test_texts_keep_the_signs_and_points_of_numbers() -> None:
    assert not is_right("text", ["35 m"], "-3.5 m")
    assert not is_right("text", ["35 m"], "3.5 m")
    assert is_right("text", ["1,000 m"], "the 1000 m.")
