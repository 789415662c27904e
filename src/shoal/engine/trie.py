"""The order in which masks are run so that they share the blocks below their first difference.

A hidden state is named by the blocks that made it, as the bits of an integer. The states on the way
to a mask's output are the prefixes of its kept blocks, so a set of masks is a trie whose edges are
block passes. For the masks that remove 0, 1 or 2 of three blocks:

    (start) --1--> 1  --2--> 12      removes 0
       |
       0
       v
       0    --2--> 02                removes 1
       |
       1
       v
       01                            removes 2

Six passes would be run one by one, five are run shared. Masks are visited with removed blocks
before kept ones, so that the state at a branch is the only one that must wait.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shoal.core.mask import Mask

State = int
"""A hidden state, named by the set of blocks applied: bit i stands for block i."""


def path(mask: Mask) -> tuple[State, ...]:
    """The states on the way to a mask's output, the entry (0) first."""
    states = [0]
    for block in mask.kept:
        states.append(states[-1] | 1 << block)
    return tuple(states)


def visiting_order(masks: Iterable[Mask]) -> list[Mask]:
    """Sort masks depth first, with removed blocks before kept ones."""

    def kept_string(mask: Mask) -> str:
        gone = set(mask.blocks)
        return "".join("0" if i in gone else "1" for i in range(mask.depth))

    return sorted(masks, key=kept_string)


def shared_passes(masks: Iterable[Mask]) -> int:
    """Block passes when masks share their prefixes: the edges of the trie."""
    return len({state for mask in masks for state in path(mask)} - {0})


def naive_passes(masks: Iterable[Mask]) -> int:
    """Block passes when every mask is run on its own."""
    return sum(len(mask.kept) for mask in masks)


@dataclass(frozen=True)
class Visit:
    """One mask in its turn.

    Attributes:
        mask: The mask.
        path: Its states, entry first.
        keep: States of the path that a later mask of the same set starts from.
    """

    mask: Mask
    path: tuple[State, ...]
    keep: frozenset[State]


def visits(masks: Sequence[Mask]) -> list[Visit]:
    """Plan the visits of distinct masks, in order.

    A state must wait if it is where some later mask leaves the current path; those are the
    longest common prefixes of neighbours in the visiting order.
    """
    ordered = visiting_order(masks)
    paths = [path(m) for m in ordered]
    waiting: set[State] = set()
    planned: list[Visit] = []
    for i in range(len(ordered) - 1, -1, -1):
        on_path = set(paths[i])
        waiting &= on_path
        planned.append(Visit(ordered[i], paths[i], frozenset(waiting)))
        if i > 0:
            previous = set(paths[i - 1])
            waiting.add(next(s for s in reversed(paths[i]) if s in previous))
    return planned[::-1]
