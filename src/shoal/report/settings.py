"""Settings as a table."""

from collections.abc import Mapping
from typing import Any

from shoal.report.page import Table


def settings_table(values: Mapping[str, Any], caption: str) -> Table:
    """Settings with the names of nested ones joined by dots."""
    rows = [[name, text] for name, text in flat(values)]
    return Table(["name", "value"], rows, caption, numbers=False)


def flat(values: Mapping[str, Any], above: str = "") -> list[tuple[str, str]]:
    """Nested values as pairs of a dotted name and a text."""
    found: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            found += flat(value, f"{above}{name}.")
        elif isinstance(value, list | tuple):
            found.append((f"{above}{name}", ", ".join(map(str, value)) or "none"))
        else:
            found.append((f"{above}{name}", "none" if value in (None, {}) else str(value)))
    return found
