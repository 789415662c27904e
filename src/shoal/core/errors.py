"""The few kinds of error that shoal raises on purpose.

Every message says what is wrong, what was given, what is allowed and what to do. The command line
turns a `UsageError` into exit code 2 and every other `ShoalError` into exit code 1.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class ShoalError(Exception):
    """Root of all errors that shoal raises on purpose."""


class UsageError(ShoalError, ValueError):
    """The request itself is wrong: a bad value, a missing file, an unknown name."""


class UnsupportedModelError(ShoalError, ValueError):
    """The model cannot be pruned as asked, and the message says why."""


class MissingDependencyError(ShoalError, ImportError):
    """An optional package is needed; the message holds the command that installs it."""


class NotFiniteError(ShoalError, ArithmeticError):
    """The dense model gives no finite loss, so nothing can be compared with it."""


class VerificationError(ShoalError, RuntimeError):
    """A self-check failed: two ways of computing the same numbers disagree."""


class BudgetError(UsageError):
    """The work would exceed a stated limit."""


def closest(name: str, known: Iterable[str]) -> str:
    """Return ' Did you mean "x"?' for the nearest known name, or an empty string."""
    near = get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f' Did you mean "{near[0]}"?' if near else ""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """Build the error for a name that is not in a registry.

    Args:
        kind: What the name was looked up as, e.g. "search".
        name: The name that was given.
        known: The names that exist.

    Returns:
        The error to raise.
    """
    names = sorted(known)
    return UsageError(f'unknown {kind} "{name}".{closest(name, names)} Known: {", ".join(names)}.')
