"""Amounts as users write them: 20%, 25M, 1.2B."""

import re
from fractions import Fraction

from shoal.core.errors import UsageError

_FACTORS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9}


def share(flag: str, text: str) -> float:
    """Read a percentage of a model.

    Raises:
        UsageError: If it is none, or not between 0% and 100%.
    """
    try:
        found = Fraction(text.strip().removesuffix("%")) / 100
    except (ValueError, ZeroDivisionError) as error:
        raise UsageError(f'{flag} is "{text}", which is no percentage. Write it as 20%.') from error
    if not text.strip().endswith("%"):
        raise UsageError(f'{flag} is "{text}"; give a share, such as 20%.')
    if not 0 < found < 1:
        raise UsageError(f"{flag} is {text}: give more than 0% and less than 100%.")
    return float(found)


def parameters(flag: str, text: str, total: float) -> float:
    """Read a number of parameters, or a percentage of a model that has `total`.

    Raises:
        UsageError: If it is neither, nothing, or as much as there is.
    """
    text = text.strip()
    if text.endswith("%"):
        return share(flag, text) * total
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmbg]?)", text.lower())
    if match is None:
        raise UsageError(
            f'{flag} is "{text}", which is neither a share (20%) nor a number of parameters (25M, '
            "1.2B)."
        )
    amount = float(match[1]) * _FACTORS[match[2]]
    if not 0 < amount < total:
        raise UsageError(
            f"{flag} is {text}: the model has {total:,.0f} parameters, so give more than 0 and "
            "fewer than that."
        )
    return amount
