r"""Whether a generated text gives a right answer.

    numeric   a number of equal value: that in the last \boxed{}, else the first after the last
              "####", else the last of the text; as TALE (2510.22767) and gsm8k are judged
    text      equal after SQuAD's normalisation (Rajpurkar et al. 2016): lower case, without
              punctuation, articles and surplus space; signs and points of numbers stay
    auto      numeric for an answer that is nothing but a number, else text
    prefix    the text starts with the answer at a word boundary; lower case, punctuation as space.
              Articles stay: an answer may be one
    letter    the same for the label of a choice, in which case matters: "a leg" is no "A"

An item is right where any of its answers is given.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Literal

Match = Literal["numeric", "text", "auto", "prefix", "letter"]

_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+"
# A minus after a digit, a letter or a bracket is a difference or a hyphen, not a sign.
_NUMBER = re.compile(rf"(?P<sign>(?<![\w)\]}}])[-−])?\\?\$?(?P<digits>{_DIGITS})")
_PLAIN = re.compile(rf"(?P<sign>[-−])?\\?\$?(?P<digits>{_DIGITS})\\?%?\.?")
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_BOX = r"\boxed{"
_MARK = "####"


def plain_number(text: str) -> Decimal | None:
    """The value of a text that is nothing but a number, or None."""
    return _value(_PLAIN.fullmatch(text.strip()))


def final_number(text: str) -> Decimal | None:
    """The number that a generated text ends up with, or None where it has none."""
    box = text.rfind(_BOX)
    if box >= 0:
        return _last(_braced(text[box + len(_BOX) :]))
    _, mark, after = text.rpartition(_MARK)
    return _value(_NUMBER.search(after)) if mark else _last(text)


def normalised(text: str) -> str:
    """SQuAD's normal form of an answer; its words alone where that would leave nothing."""
    plain = _plain(text.lower())
    return _spaced(_ARTICLE.sub(" ", plain)) or _spaced(plain) or _spaced(text.lower())


def starts_with(answer: str, text: str, *, keep_case: bool = False) -> bool:
    """Whether a text starts with an answer that ends at a word boundary."""
    wanted, found = _words(answer, keep_case), _words(text, keep_case)
    if not wanted:
        return text.strip().startswith(answer.strip())
    return found == wanted or found.startswith(wanted + " ")


def is_right(match: Match, answers: Sequence[str], text: str) -> bool:
    """Whether a generated text gives any of the answers.

    Args:
        match: How to compare.
        answers: The right answers.
        text: What the model wrote, up to where it stopped.
    """
    return any(_JUDGES[match](answer, text) for answer in answers)


def all_numbers(answers: Iterable[Sequence[str]]) -> bool:
    """Whether every answer of every item is nothing but a number."""
    return all(plain_number(a) is not None for several in answers for a in several)


def _braced(text: str) -> str:
    """What stands before the brace that closes a box; all of it where none does."""
    depth = 1
    for place, character in enumerate(text):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0:
            return text[:place]
    return text


def _last(text: str) -> Decimal | None:
    found = None
    for found in _NUMBER.finditer(text):  # noqa: B007
        pass
    return _value(found)


def _value(found: re.Match[str] | None) -> Decimal | None:
    if found is None:
        return None
    value = Decimal(found["digits"].replace(",", ""))
    return value.copy_negate() if found["sign"] else value


def _plain(text: str) -> str:
    """A text without punctuation; its numbers as their values, so that -3.5 is not 35."""
    pieces, end = [], 0
    for number in _NUMBER.finditer(text):
        value = Decimal(number["digits"].replace(",", ""))
        pieces += [text[end : number.start()], "-" if number["sign"] else "", f"{value:f}"]
        end = number.end()
    pieces.append(text[end:])
    kept = [
        piece if i % 3 else "".join(c for c in piece if not _is_punctuation(c))
        for i, piece in enumerate(pieces)
    ]
    return "".join(kept)


def _is_punctuation(character: str) -> bool:
    ascii_mark = character.isascii() and character.isprintable() and not character.isalnum()
    return (ascii_mark and character != " ") or unicodedata.category(character).startswith("P")


def _spaced(text: str) -> str:
    return " ".join(text.split())


def _words(text: str, keep_case: bool) -> str:
    text = text if keep_case else text.lower()
    return _spaced("".join(" " if _is_punctuation(c) else c for c in text))


def _same_number(answer: str, text: str) -> bool:
    value = final_number(text)
    return value is not None and value == final_number(answer)


def _same_text(answer: str, text: str) -> bool:
    return normalised(answer) == normalised(text)


_JUDGES: dict[Match, Callable[[str, str], bool]] = {
    "numeric": _same_number,
    "text": _same_text,
    "auto": lambda answer, text: (_same_text if plain_number(answer) is None else _same_number)(
        answer, text
    ),
    "prefix": starts_with,
    "letter": lambda answer, text: starts_with(answer, text, keep_case=True),
}
