"""Typed access to the fields of one row, with errors that name the key."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from math import isfinite
from typing import Any

from shoal.core.errors import UsageError, closest

Row = Mapping[str, Any]
"""One record of a data file or of a hub data set."""


def value(row: Row, key: str) -> Any:
    """The value under a key.

    Raises:
        UsageError: If the key is missing.
    """
    if key not in row:
        there = ", ".join(map(str, row)) or "none"
        raise UsageError(f'the key "{key}" is missing.{closest(key, row)} Keys there: {there}.')
    return row[key]


def text(row: Row, key: str) -> str:
    """The string under a key.

    Raises:
        UsageError: If the key is missing or holds something else.
    """
    found = value(row, key)
    if not isinstance(found, str):
        raise _wrong(key, "a string", found)
    return found


def texts(row: Row, key: str) -> tuple[str, ...]:
    """The list of strings under a key.

    Raises:
        UsageError: If the key is missing or holds something else.
    """
    found = value(row, key)
    if not isinstance(found, list | tuple) or not all(isinstance(t, str) for t in found):
        raise _wrong(key, "a list of strings", found)
    return tuple(found)


def integer(row: Row, key: str) -> int:
    """The whole number under a key; digits in a string count, as several data sets store labels so.

    Raises:
        UsageError: If the key is missing or holds something else.
    """
    found = value(row, key)
    if isinstance(found, int) and not isinstance(found, bool):
        return found
    if isinstance(found, str) and found.strip().removeprefix("-").isdecimal():
        return int(found)
    hidden = " An empty label means that this split hides its labels." if found == "" else ""
    raise UsageError(f"{_wrong(key, 'a whole number', found)}{hidden}")


def spelled(row: Row, key: str) -> str:
    """The string or the number under a key, as a string.

    Raises:
        UsageError: If the key is missing or holds something else, or nothing.
    """
    return _spelled(key, value(row, key))


def all_spelled(row: Row, key: str) -> tuple[str, ...]:
    """The strings and numbers under a key, one or a list of them, as strings.

    Raises:
        UsageError: If the key is missing or holds something else, or nothing.
    """
    found = value(row, key)
    listed = found if isinstance(found, list | tuple) else (found,)
    if not listed:
        raise _wrong(key, "at least one string or number", found)
    return tuple(_spelled(key, one) for one in listed)


def _spelled(key: str, found: object) -> str:
    if isinstance(found, str) and found.strip():
        return found
    if isinstance(found, int | float) and not isinstance(found, bool) and isfinite(found):
        # repr() of a large or small float has an exponent, which no text would have.
        return format(Decimal(repr(found)), "f")
    raise _wrong(key, "a string that is not blank, or a number", found)


def index_of(label: str, labels: tuple[str, ...]) -> int:
    """The place of an answer label among the labels of the choices.

    Raises:
        UsageError: If it is not among them.
    """
    if label.strip() not in labels:
        raise UsageError(
            f'the answer is "{label}", but the choices are labelled {", ".join(labels)}.'
        )
    return labels.index(label.strip())


@contextmanager
def located(where: str) -> Iterator[None]:
    """Put the place of a row before the message of any usage error raised inside."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error


def _wrong(key: str, wanted: str, found: object) -> UsageError:
    return UsageError(f'the key "{key}" must hold {wanted}, got {str(found)[:60]!r}.')
