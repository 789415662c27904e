"""Fast-block-select: one-shot, then the runs of the removed set exchanged for better windows.

    s_i = L({i}) - L(dense)                         # or a state score of block i
    P = the k blocks with the least s
    repeat, at most `rounds` times:
        for each length n of a run of P:
            W_n = the `windows` windows of n blocks with the least sum of s, and P's own runs
            w(W) = L(W) - L(dense) for W in W_n     # or the state score of the window
        P = the runs with k blocks in total and the least sum of w, of the windows of these lengths
    until P was seen before, or is isolated blocks only
    return the P with the least L of all that were seen

MI-PRUN (Zhang et al. 2026, 2601.07212), which scores by the mutual information of what enters and
leaves a window. Known to us from descriptions only, which leave the score, the number of windows
and their combination open. What we filled in:

- The score is the objective's loss, or any state score (`rank`).
- Losses are taken relative to the dense one. A sum of m losses holds the dense loss m times, which
  would favour few windows over many whatever they cost; sums of differences are comparable, and
  estimate the difference that the whole set makes.
- Windows are combined exactly, by dynamic programming (`shoal.searches.windows`); ties go to the
  lower sum of s, then to the blocks that come first. Single blocks are windows too, all of them
  known. Windows that touch are one run: it counts with its own w where that was measured, else
  with the sum of the windows that tile it. Such a sum is an estimate, and an optimistic one where
  removals aggravate each other, so the next round, P having a run of that length, measures it.
- A set of isolated blocks has no run to exchange and is final: where one-shot finds one, its set
  is the result.
- A set that was seen before ends the search, as the estimates may lead in a circle.
- The sum of w is blind to interactions between runs, so each P is evaluated by the true loss and
  the best is returned: never worse than one-shot. That is our addition.

Windows with a protected block, that break a rule of the architecture, or whose score is not finite
are no candidates; if the windows that were chosen break a rule together, the last P is kept.

Cost, for N removable units and r rounds: N + r (1 + `windows` and a few more, per run length that
is new) + 1 evaluations; with a state score at most r + 1, and a pass per run length.

Windows are runs of k blocks in total, so a weight and other units are refused.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite

from shoal.config.searches import FastBlockSelectConfig
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask
from shoal.searches.base import Problem, SearchRun, best_of
from shoal.searches.one_shot import least_units
from shoal.searches.windows import (
    Score,
    Window,
    best_runs,
    mask_of,
    require_blocks,
    run_scores,
    runs,
    valid_windows,
)

Asking = Generator[Sequence[Mask], Sequence[Evaluation], None]
"""A part of a search that asks for masks and keeps the answers."""


def fast_block_select(problem: Problem, config: FastBlockSelectConfig) -> SearchRun:
    """Exchange runs until nothing changes; return the best set on the way."""
    require_blocks(problem.space, "fast_block_select", problem.budget)
    scores = _Scores(problem, config)
    yield from scores.rank_blocks()
    mask = least_units(problem, list(scores.alone.values()))
    visited = [mask]
    for _ in range(config.rounds):
        yield from scores.measure(mask)
        exchanged = _exchange(problem, scores, mask)
        if exchanged is None or exchanged in visited:
            break
        mask = exchanged
        visited.append(mask)
    yield from scores.ask(visited)
    return best_of([scores.known[m] for m in visited]).mask


def _exchange(problem: Problem, scores: "_Scores", mask: Mask) -> Mask | None:
    """The best runs that windows as long as the mask's own make, if they may go together."""
    space = problem.space
    lengths = {run.length for run in runs(mask)}
    if lengths == {1}:
        return None
    candidates = run_scores(scores.measured, lengths, problem.k)
    valid = {run: w for run, w in candidates.items() if space.is_valid(mask_of(space, [run]))}
    chosen = best_runs(valid, problem.k)
    exchanged = None if chosen is None else mask_of(space, chosen)
    return exchanged if exchanged is not None and space.is_valid(exchanged) else None


@dataclass
class _Scores:
    """What is known of blocks and windows.

    Attributes:
        problem: The search problem.
        config: The search's options.
        alone: Score of each removable block, in the order of the space.
        measured: Scores of windows; ties are broken by the sum of the blocks' own.
        known: All evaluations.
    """

    problem: Problem
    config: FastBlockSelectConfig
    alone: dict[int, float] = field(default_factory=dict)
    measured: dict[Window, Score] = field(default_factory=dict)
    known: dict[Mask, Evaluation] = field(default_factory=dict)

    def ask(self, masks: Iterable[Mask]) -> Asking:
        """Ask for what is not known yet, if anything."""
        new = [mask for mask in dict.fromkeys(masks) if mask not in self.known]
        if new:
            self.known |= zip(new, (yield new), strict=True)

    def rank_blocks(self) -> Asking:
        """Score every removable block alone."""
        space = self.problem.space
        blocks = [site.layer for unit in space.units for site in unit]
        windows = [Window(block, 1) for block in blocks]
        if self.config.rank == "loss":
            yield from self.ask([space.dense])
            yield from self.ask(mask_of(space, [w]) for w in windows)
            self.alone = {w.start: self._harm(w) for w in windows}
        else:
            states = self.problem.signals.units(self.config.rank)
            self.alone = dict(zip(blocks, map(_or_inf, states), strict=True))

    def measure(self, mask: Mask) -> Asking:
        """Score the promising windows for a mask, and evaluate the mask itself."""
        space = self.problem.space
        windows = list(self._promising(mask))
        if self.config.rank == "loss":
            yield from self.ask([mask, *(mask_of(space, [w]) for w in windows)])
            harms = {w: self._harm(w) for w in windows}
        else:
            yield from self.ask([mask])
            harms = self._states(windows)
        self.measured |= {w: (harms[w], self._sum_alone(w)) for w in windows}

    def _promising(self, mask: Mask) -> Iterator[Window]:
        """For each run length: the best windows by the sum of their blocks, and the mask's own."""
        own = runs(mask)
        for length in sorted({run.length for run in own}):
            valid = valid_windows(self.problem.space, length)
            ranked = sorted(valid, key=self._sum_alone)
            best = ranked if length == 1 else ranked[: self.config.windows]
            yield from best
            yield from (w for w in valid if w in own and w not in best)

    def _harm(self, window: Window) -> float:
        """What the removal of a window adds to the dense loss."""
        space = self.problem.space
        return _or_inf(self.known[mask_of(space, [window])].rank_key - self.known[space.dense].mean)

    def _states(self, windows: Sequence[Window]) -> dict[Window, float]:
        """State scores of windows; of single blocks what they were ranked by."""
        signals, rank = self.problem.signals, self.config.rank
        harms = {w: self.alone[w.start] for w in windows if w.length == 1}
        for length in sorted({w.length for w in windows} - {1}):
            states = signals.windows(rank, length)
            harms |= {w: _or_inf(states[w.start]) for w in windows if w.length == length}
        return harms

    def _sum_alone(self, window: Window) -> float:
        return sum(self.alone[block] for block in window.blocks)


def _or_inf(score: float) -> float:
    return score if isfinite(score) else inf
