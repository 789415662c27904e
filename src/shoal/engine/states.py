"""Hidden states kept between evaluations, within a memory budget.

The next round of a search mostly branches off states that this round has computed. States are kept
while they fit; when room is short, those that the latest round did not use go first, and states of
the latest round are never thrown out for one another, which would only make them chase each other.
"""

from dataclasses import dataclass, field

from torch import Tensor

from shoal.engine.trie import State


@dataclass
class StateCache:
    """States of one micro-batch.

    Attributes:
        budget: Bytes that the kept states may take.
    """

    budget: int
    _states: dict[State, Tensor] = field(default_factory=dict)
    _used: dict[State, int] = field(default_factory=dict)
    _round: int = 0
    _bytes: int = 0

    def next_round(self) -> None:
        """Mark the start of a set of masks."""
        self._round += 1

    def deepest(self, path: tuple[State, ...]) -> tuple[int, Tensor] | None:
        """The last state of a path that is kept, with its place in the path."""
        for place in range(len(path) - 1, -1, -1):
            state = self._states.get(path[place])
            if state is not None:
                self._used[path[place]] = self._round
                return place, state
        return None

    def offer(self, name: State, state: Tensor) -> None:
        """Keep a state if there is room, or room can be made."""
        size = state.numel() * state.element_size()
        if name in self._states or size > self.budget:
            return
        if self._bytes + size > self.budget:
            self._make_room(size)
        if self._bytes + size <= self.budget:
            self._states[name] = state
            self._used[name] = self._round
            self._bytes += size

    def _make_room(self, size: int) -> None:
        stale = sorted((used, name) for name, used in self._used.items() if used < self._round)
        for _, name in stale:
            if self._bytes + size <= self.budget:
                return
            gone = self._states.pop(name)
            del self._used[name]
            self._bytes -= gone.numel() * gone.element_size()
