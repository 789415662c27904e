"""Drawing masks that are distinct and new."""

from collections.abc import Callable, Container

from shoal.core.mask import Mask

TRIES = 20
"""Draws per wanted mask; where nearly all masks are known, the others are hard to hit."""


def fresh(
    draw: Callable[[], Mask | None],
    wanted: int,
    known: Container[Mask] = (),
    patience: int = 0,
) -> list[Mask]:
    """Draw until there are as many distinct new masks as wanted, or too many draws were in vain.

    Args:
        draw: Draws a mask, or None where the draw came to nothing.
        wanted: How many masks.
        known: Masks that are not new.
        patience: Draws that are made in any case before masks are given up.

    Returns:
        At most `wanted` masks, in the order in which they were drawn.
    """
    drawn: dict[Mask, None] = {}
    for _ in range(max(TRIES * wanted, patience)):
        if len(drawn) == wanted:
            break
        mask = draw()
        if mask is not None and mask not in known:
            drawn[mask] = None
    return list(drawn)
