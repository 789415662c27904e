"""Showing and parsing foreign text safely: bounded messages, one kind of error."""

import json
from reprlib import Repr
from typing import Any

import yaml

from shoal.core.errors import UsageError

# A few bytes of YAML with aliases, or one long list, would otherwise fill the terminal.
_SHORT = Repr()
_SHORT.maxlevel = 3
_SHORT.maxstring = _SHORT.maxother = 80


def shown(value: object) -> str:
    """A value as a message shows it, cut to a readable length."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # Python refuses to write out numbers of thousands of digits.
        return f"a {type(value).__name__} with an overlong number"


def parse_json(text: str) -> Any:
    """The value of a JSON text.

    Raises:
        UsageError: If it is no JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the text is no JSON: {error}.") from error


def parse_yaml(text: str) -> Any:
    """The value of a YAML text, of plain types only.

    Raises:
        UsageError: If it is no YAML.
    """
    try:
        return yaml.safe_load(text)
    # Bad dates and overlong numbers leave the parser as ValueError; unhashable keys and odd
    # merges as TypeError.
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise UsageError(f"the text is no YAML: {_first_line(error)}.") from error


def whole_number(value: object) -> bool:
    """Whether a value is an integer and not a truth value, which Python counts as one."""
    return isinstance(value, int) and not isinstance(value, bool)


def _first_line(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    where = "" if mark is None else f" in line {mark.line + 1}"
    said = str(getattr(error, "problem", None) or error).strip() or type(error).__name__
    return f"{said.splitlines()[0].removesuffix('.')}{where}"
