"""Lists as users write them in one flag: `0.5,1,2`, `3` seeds or the seeds `5,7`."""

from typing import Any


def numbers(value: Any) -> Any:
    """Read `0.5,1,2` as numbers."""
    if isinstance(value, str):
        return tuple(value.replace(",", " ").split())
    return (value,) if isinstance(value, int | float) else value


def seeds(value: Any) -> Any:
    """Read `3` as the seeds 0, 1, 2, and `5,7` as those two."""
    if isinstance(value, str):
        parts = tuple(value.replace(",", " ").split())
        value = int(parts[0]) if len(parts) == 1 and parts[0].isdecimal() else parts
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 1:
            raise ValueError("there must be at least one seed.")
        return tuple(range(value))
    return value
