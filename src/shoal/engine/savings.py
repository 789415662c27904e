"""What racing saved: the work of races against that of full evaluation of the same contests."""

from collections.abc import Iterable, Mapping, Sequence

from shoal.core.mask import Mask
from shoal.engine.trie import State, halved_by, naive_passes, passes, steps


class Savings:
    """Counts the work of races, and the work that full evaluation would have been.

    Both are counted in the same way, whatever was stored before, so a resumed search reports what
    an undisturbed one does. States that masks share are counted once, also between contests, as if
    all of them were kept; full evaluation gains more from that than races do, so where memory is
    short the saving is larger than what is said here.

    Args:
        sizes: Number of examples of each part.
        shared: Whether masks share block passes; else each is run on its own.

    Attributes:
        candidates: Masks that took part in a race, each counted once.
        completed: Those of them that were evaluated in full.
        dropped: Masks dropped after each part.
        examples: Example evaluations: done, and those of full evaluation.
        blocks: Block passes of one example: done, and those of full evaluation.
    """

    def __init__(self, sizes: Sequence[int], shared: bool = True) -> None:
        self._sizes, self._shared = tuple(sizes), shared
        self._raced = [_Part() for _ in sizes]
        self._full = _Part()
        self.candidates = self.completed = 0
        self.dropped = [0] * len(sizes)
        self.examples = [0, 0]
        self.blocks = [0.0, 0.0]

    def add_full(self, masks: Iterable[Mask]) -> None:
        """Note masks that were evaluated in full outside races; they count on neither side."""
        masks = list(masks)
        for part in [*self._raced, self._full]:
            part.add(masks, self._shared)

    def add_race(self, parts: Mapping[Mask, int]) -> None:
        """Note a race.

        Args:
            parts: How many parts each mask was evaluated on.
        """
        total = sum(self._sizes)
        new, work = self._full.add(parts, self._shared)
        self.candidates += new
        self.examples[1] += new * total
        self.blocks[1] += work * total
        for i, size in enumerate(self._sizes):
            new, work = self._raced[i].add([m for m, n in parts.items() if n > i], self._shared)
            self.examples[0] += new * size
            self.blocks[0] += work * size
            self.dropped[i] += sum(n == i + 1 for n in parts.values()) if self.last(i) else 0
        # The last part was reached by those that were not dropped.
        self.completed += new

    def last(self, part: int) -> bool:
        """Whether masks can be dropped after a part: not after the last, which completes them."""
        return part + 1 < len(self._sizes)

    @property
    def factor(self) -> float:
        """How many times the block passes of races full evaluation would have taken."""
        return self.blocks[1] / self.blocks[0] if self.blocks[0] else 1.0


class _Part:
    """The masks that ran on some examples, and the states that were met on the way."""

    def __init__(self) -> None:
        self._masks: set[Mask] = set()
        self._states: set[State] = {0}

    def add(self, masks: Iterable[Mask], shared: bool) -> tuple[int, float]:
        """Note masks; returns how many are new, and the block passes that they take."""
        new = [mask for mask in masks if mask not in self._masks]
        self._masks.update(new)
        if not shared:
            return len(new), naive_passes(new)
        halved = halved_by(new)
        paths = [steps(mask, halved) for mask in new]
        edges = {state: site for path in paths for state, site in path}
        work = sum(passes(site) for state, site in edges.items() if state not in self._states)
        # A mask's own output is not kept: nothing starts from it.
        self._states.update(state for path in paths for state, _ in path[:-1])
        return len(new), work
