"""Per-block lists of any length, with more than one kind of block in them."""

from typing import Any

FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"


def cycle(depth: int, *kinds: Any) -> list[Any]:
    """The kinds in turn, from the first block on."""
    return [kinds[i % len(kinds)] for i in range(depth)]


def lead(depth: int, count: int, first: Any, rest: Any) -> list[Any]:
    """One kind for the first `count` blocks, another for the rest."""
    return [first if i < count else rest for i in range(depth)]


def dense_first(depth: int) -> list[str]:
    """Two dense blocks, then experts."""
    return lead(depth, 2, "dense", "sparse")


def rotary(*kinds: str, **more: Any) -> dict[str, dict[str, Any]]:
    """Rotary settings per kind of block, with a base of its own for each."""
    return {
        kind: {"rope_type": "default", "rope_theta": 10_000.0 / (i + 1), **more}
        for i, kind in enumerate(kinds)
    }
