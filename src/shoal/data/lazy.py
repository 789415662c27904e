"""Import of the packages that only some sources of data need."""

from importlib import import_module
from typing import Any

from shoal.core.errors import MissingDependencyError


def require(package: str, purpose: str) -> Any:
    """Import a package that is not a dependency of every user.

    Args:
        package: The package to import, named on PyPI as in Python.
        purpose: What it is needed for, as the start of the message.

    Raises:
        MissingDependencyError: If it is not installed; the message holds the command to run.
    """
    try:
        return import_module(package)
    except ImportError as error:
        top = package.partition(".")[0]
        raise MissingDependencyError(
            f"{purpose} needs the package {top}. Install it: pip install {top}"
        ) from error
