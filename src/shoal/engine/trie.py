"""The order in which masks are run so that they share the work below their first difference.

A hidden state is named by the sub-layers that made it, as the bits of an integer. The states on the
way to a mask's output are the prefixes of what it keeps, so a set of masks is a trie whose edges
are passes. For the masks that remove 0, 1 or 2 of three blocks:

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

Where a mask of the set removes a part of a block, that block is run in two halves for all masks of
the set, so that the state between attention and MLP is shared, too. A half counts as half a pass.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shoal.core.mask import Mask, Part, Site

State = int
"""A hidden state, named by what was applied: bit 2 i for attention i, bit 2 i + 1 for MLP i."""

Step = tuple[State, Site]
"""What is run next, and the state that it leads to."""


def steps(mask: Mask, halved: frozenset[int] = frozenset()) -> tuple[Step, ...]:
    """What is run for a mask, in order.

    Args:
        mask: The mask.
        halved: Blocks that are run as attention and MLP.
    """
    found: list[Step] = []
    state = 0
    for layer in mask.kept:
        stays = [site for site in Site(layer).sublayers if site.position not in mask.places]
        whole = len(stays) == 2 and layer not in halved
        for site in [Site(layer)] if whole else stays:
            state |= (3 if whole else 1) << site.position
            found.append((state, site))
    return tuple(found)


def halved_by(masks: Iterable[Mask]) -> frozenset[int]:
    """The blocks of which some mask removes a part."""
    return frozenset(s.layer for m in masks for s in m.removed if s.part is not Part.BLOCK)


def visiting_order(masks: Iterable[Mask]) -> list[Mask]:
    """Sort masks depth first, with what is removed before what is kept."""

    def kept_string(mask: Mask) -> str:
        return "".join("0" if p in mask.places else "1" for p in range(2 * mask.depth))

    return sorted(masks, key=kept_string)


def passes(site: Site) -> float:
    """What a step costs, in passes of a whole block."""
    return 1.0 if site.part is Part.BLOCK else 0.5


def shared_passes(masks: Iterable[Mask]) -> float:
    """Block passes when masks share their prefixes: the edges of the trie."""
    masks = list(masks)
    halved = halved_by(masks)
    edges = {state: site for mask in masks for state, site in steps(mask, halved)}
    return sum(map(passes, edges.values()))


def naive_passes(masks: Iterable[Mask]) -> float:
    """Block passes when every mask is run on its own."""
    return sum(mask.depth - len(mask.sublayers) / 2 for mask in masks)


@dataclass(frozen=True)
class Visit:
    """One mask in its turn.

    Attributes:
        mask: The mask.
        steps: What is run for it.
        keep: States of its path that a later mask of the same set starts from.
    """

    mask: Mask
    steps: tuple[Step, ...]
    keep: frozenset[State]

    @property
    def path(self) -> tuple[State, ...]:
        """Its states, the entry (0) first."""
        return (0, *(state for state, _ in self.steps))


def visits(masks: Sequence[Mask], whole: frozenset[int] = frozenset()) -> list[Visit]:
    """Plan the visits of distinct masks, in order.

    A state must wait if it is where some later mask leaves the current path; those are the
    longest common prefixes of neighbours in the visiting order.

    Args:
        masks: The masks.
        whole: Blocks that cannot be run in halves, since their MLP does not read what their
            attention has added to; their parts are removed from one pass of the block.
    """
    ordered = visiting_order(masks)
    halved = halved_by(masks) - whole
    all_steps = [steps(m, halved) for m in ordered]
    paths = [(0, *(state for state, _ in s)) for s in all_steps]
    waiting: set[State] = set()
    planned: list[Visit] = []
    for i in range(len(ordered) - 1, -1, -1):
        on_path = set(paths[i])
        waiting &= on_path
        planned.append(Visit(ordered[i], all_steps[i], frozenset(waiting)))
        if i > 0:
            previous = set(paths[i - 1])
            waiting.add(next(s for s in reversed(paths[i]) if s in previous))
    return planned[::-1]
