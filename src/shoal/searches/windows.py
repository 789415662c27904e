"""Runs of consecutive blocks, and the best set of them: exact dynamic programming.

A *window* is a run of blocks that is removed as a whole. Sets of windows are scored by the sum of
what each costs, as if windows did not interact; within a window, interactions are in its score.

Two windows that touch are one longer run, so its score must not depend on where it is cut:

    score(run) = what the run cost, where it was measured as a whole,
                 else the least sum over the ways to tile it with measured windows

and the best set is the one of least sum over runs that do not touch. With f(i, t) for t blocks
among those from i on:

    f(i, t) = min( f(i + 1, t),  min over n of score(i, n) + f(i + n + 1, t - n) )
"""

from collections.abc import Iterable, Mapping
from itertools import groupby
from math import inf, isfinite
from typing import NamedTuple

from shoal.core.budget import Budget
from shoal.core.errors import UsageError
from shoal.core.mask import Mask, Part, Site
from shoal.core.space import SearchSpace

Score = tuple[float, float]
"""What counts, and what breaks its ties; both add up."""


class Window(NamedTuple):
    """A run of consecutive blocks: `length` of them, from `start` to `start + length - 1`."""

    start: int
    length: int

    @property
    def blocks(self) -> range:
        """The blocks, ascending."""
        return range(self.start, self.start + self.length)


def require_blocks(space: SearchSpace, name: str, budget: Budget | None = None) -> None:
    """Refuse a problem that windows cannot solve: they are k whole blocks.

    Raises:
        UsageError: If some unit is a part of a block, or several sites, or the budget is a weight.
    """
    if budget is not None and not budget.uniform:
        raise UsageError(
            f"{name} removes runs of a number of blocks and cannot remove {budget}. State "
            "how many blocks to remove, or use another search: greedy, beam, cbo, genetic, bayes."
        )
    if any(len(u) != 1 or s.part is not Part.BLOCK for u in space.units for s in u):
        raise UsageError(
            f"{name} removes runs of whole blocks and needs the granularity block; "
            "use it, or another search."
        )


def runs(mask: Mask) -> list[Window]:
    """The maximal runs of removed blocks, ascending."""
    numbered = groupby(enumerate(mask.blocks), key=lambda pair: pair[1] - pair[0])
    found = [[block for _, block in group] for _, group in numbered]
    return [Window(blocks[0], len(blocks)) for blocks in found]


def mask_of(space: SearchSpace, windows: Iterable[Window]) -> Mask:
    """The mask that removes some windows."""
    return space.dense.without(Site(block) for window in windows for block in window.blocks)


def valid_windows(space: SearchSpace, length: int) -> list[Window]:
    """The windows of `length` blocks that may be removed, by their start."""
    windows = (Window(start, length) for start in range(space.depth - length + 1))
    return [w for w in windows if space.is_valid(mask_of(space, [w]))]


def run_scores(
    measured: Mapping[Window, Score], lengths: Iterable[int], longest: int
) -> dict[Window, Score]:
    """The score of every run that windows of some lengths tile.

    Args:
        measured: Scores of single windows.
        lengths: Lengths of the windows to tile with; a measured run of another length that can
            be tiled keeps the score that was measured.
        longest: Blocks of the longest run.
    """
    allowed = frozenset(lengths)
    tiles = {w: score for w, score in measured.items() if w.length in allowed}
    tiled: dict[Window, Score] = {}
    for length in range(1, longest + 1):
        for start in {w.start for w in tiles}:
            run = Window(start, length)
            ways = [tiles[run]] if run in tiles else []
            for cut in range(1, length):
                first, rest = Window(start, cut), Window(start + cut, length - cut)
                if first in tiles and rest in tiled:
                    ways.append(_sum(tiles[first], tiled[rest]))
            if ways:
                tiled[run] = min(ways)
    return {run: measured.get(run, score) for run, score in tiled.items()}


def best_runs(scores: Mapping[Window, Score], total: int) -> tuple[Window, ...] | None:
    """The runs of least summed score that do not touch and have `total` blocks together.

    Of equal scores the one whose blocks come first, in lexicographic order.

    Args:
        scores: Score of each candidate; one that is not finite is none.
        total: Blocks of the result.

    Returns:
        The runs, ascending, or None if no candidates have `total` blocks together.
    """
    finite = {run: score for run, score in scores.items() if isfinite(score[0])}
    end = max((run.start + run.length for run in finite), default=0)
    nothing = [((0.0, 0.0), ())] + [_UNREACHED] * total
    # best[i][t]: the best t blocks among those from i on.
    best: list[list[tuple[Score, tuple[Window, ...]]]] = [nothing] * (end + 2)
    for start in reversed(range(end)):
        row = []
        for wanted in range(total + 1):
            ways = []
            for length in range(wanted, 0, -1):
                run = Window(start, length)
                if run in finite:
                    score, others = best[start + length + 1][wanted - length]
                    ways.append((_sum(finite[run], score), (run, *others)))
            # The first least: a longer run here comes before a shorter one, and any before none.
            row.append(min([*ways, best[start + 1][wanted]], key=lambda way: way[0]))
        best[start] = row
    score, chosen = best[0][total]
    return chosen if isfinite(score[0]) else None


_UNREACHED: tuple[Score, tuple[Window, ...]] = ((inf, inf), ())


def _sum(one: Score, other: Score) -> Score:
    return one[0] + other[0], one[1] + other[1]
