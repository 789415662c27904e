"""Between which two states of a forward pass a run of sub-layers lies.

The sub-layers stand in a row, attention 0, MLP 0, attention 1, ..., and a run is a span of it, so a
block is (2i, 2i + 2) and a half step (2i + 1, 2i + 3). For a block of input h and output h'',

    sequential   attention: h -> h' = h + Attn(h)      MLP: h' -> h''
    parallel     attention: h -> h + Attn(h)           MLP: h  -> h + Mlp(h)

In a parallel block no state lies between the two, so no longer run begins or ends there.
"""

from collections.abc import Sequence
from enum import IntEnum

from shoal.core.tiling import Span
from shoal.models.branches import BlockBranches


class Moment(IntEnum):
    """When, within one block; in the order in which the states become known."""

    ENTRY = 0
    ATTN = 1
    """After the attention alone."""
    MLP = 2
    """After the MLP alone."""
    EXIT = 3


State = tuple[int, Moment]
"""A block and a moment; states compare by the order in which they become known."""


def why_not(span: Span, branches: Sequence[BlockBranches], *, states: bool = True) -> str | None:
    """Why a run is no part of the model, or has no states at its ends; None where it has.

    Args:
        span: First place of the run, and the place after its last.
        branches: What each block is made of; not looked at where a run begins and ends with blocks.
        states: Whether its ends must be states.
    """
    for cut in (place // 2 for place in span if place % 2):
        if not branches[cut].paired:
            return f"block {cut} has one branch only"
        if states and not branches[cut].sequential and span[1] - span[0] > 1:
            return (
                f"the attention and the MLP of block {cut} work side by side on the same state, so "
                "that no state lies between them"
            )
    return None


def between(span: Span, branches: Sequence[BlockBranches]) -> tuple[State, State]:
    """The state that enters the first sub-layer of a run, and the one that leaves its last.

    Args:
        span: A run that `why_not` has nothing against.
        branches: As there.
    """
    start, stop = span
    first, last = start // 2, (stop - 1) // 2
    if start % 2 and not branches[first].sequential:
        return (first, Moment.ENTRY), (first, Moment.MLP)
    return (
        (first, Moment.ATTN if start % 2 else Moment.ENTRY),
        (last, Moment.ATTN if stop % 2 else Moment.EXIT),
    )
