"""One race: the masks of a contest on growing parts of the data, until the best are known."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from shoal.core.evaluation import Cost, Evaluation
from shoal.core.mask import Mask
from shoal.engine.evaluator import Evaluator
from shoal.engine.paired import critical, t_statistics
from shoal.engine.partials import Partials


@dataclass(frozen=True)
class Track:
    """The data in the order in which they are run.

    Attributes:
        batches: Micro-batches of each part.
        examples: Examples of each part, ascending.
        weights: One weight per example.
    """

    batches: tuple[tuple[int, ...], ...]
    examples: tuple[tuple[int, ...], ...]
    weights: NDArray[np.float64]

    def seen(self, parts: int) -> NDArray[np.intp]:
        """The examples of the first parts."""
        return np.concatenate([np.asarray(part, np.intp) for part in self.examples[:parts]])


@dataclass(eq=False)
class Entrant:
    """A mask in a race.

    Attributes:
        mask: The mask.
        losses: Its losses so far; NaN for examples not run.
        known: Its evaluation, where it was complete before the race or is now.
        parts: How many parts it has been run on.
        mean: Weighted mean over these.
        cost: What they took.
        beaten_by: The leaders that it was dropped for.
    """

    mask: Mask
    losses: NDArray[np.float64]
    known: Evaluation | None
    parts: int = 0
    mean: float = np.nan
    cost: Cost = field(default_factory=Cost)
    beaten_by: tuple["Entrant", ...] = ()

    @property
    def finite(self) -> bool:
        """Whether its loss is a number so far; once it is not, it stays so."""
        return bool(np.isfinite(self.mean))


class Race:
    """Runs one contest.

    Args:
        evaluator: Computes losses and keeps complete evaluations.
        partials: Keeps those of parts.
        track: The data.
        masks: Distinct masks.
        winners: How many of the best must be known exactly.
        level: Chance that a test may drop a mask that is not worse.
        minimum: Examples before which nothing is dropped by a test.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        partials: Partials,
        track: Track,
        masks: Iterable[Mask],
        winners: int,
        level: float,
        minimum: int,
    ) -> None:
        self._evaluator, self._partials, self._track = evaluator, partials, track
        self._winners, self._level, self._minimum = winners, level, minimum
        size = len(track.weights)
        self.entrants = [
            Entrant(mask, np.full(size, np.nan), evaluator.store.get(mask)) for mask in masks
        ]
        evaluator.report(entrant.known for entrant in self.entrants if entrant.known is not None)

    def run(self) -> dict[Mask, Evaluation]:
        """Run to the end; evaluations of masks that were dropped are incomplete."""
        last = len(self._track.batches)
        for parts in range(1, last + 1):
            self._advance(parts)
            while returned := self._returned():
                for entrant in returned:
                    entrant.beaten_by = ()
                self._advance(parts)
            if parts < last:
                self._drop(parts)
        found = {entrant.mask: self._evaluation(entrant) for entrant in self.entrants}
        self._evaluator.report(found.values())
        return found

    @property
    def _running(self) -> list[Entrant]:
        return [entrant for entrant in self.entrants if not entrant.beaten_by]

    def _returned(self) -> list[Entrant]:
        """Masks dropped for a leader that turned out to be broken: they are in the race again."""
        return [
            entrant
            for entrant in self.entrants
            if entrant.finite and not all(leader.finite for leader in entrant.beaten_by)
        ]

    def _advance(self, parts: int) -> None:
        """Bring the masks that run to a number of parts."""
        for part in range(parts):
            due = [entrant for entrant in self._running if entrant.parts == part]
            self._compute([entrant for entrant in due if not self._recall(entrant, part)], part)
        seen = self._track.seen(parts)
        weights = self._track.weights[seen]
        for entrant in self._running:
            # Losses of a broken mask may be infinite or overflow: no warning.
            with np.errstate(all="ignore"):
                entrant.mean = float((weights * entrant.losses[seen]).sum() / weights.sum())

    def _recall(self, entrant: Entrant, part: int) -> bool:
        """Take the losses of a part from the store."""
        examples = list(self._track.examples[part])
        if entrant.known is not None:
            entrant.losses[examples] = np.asarray(entrant.known.losses)[examples]
            entrant.cost = entrant.known.cost
        else:
            stored = self._partials.get(entrant.mask, part)
            if stored is None:
                return False
            entrant.losses[examples] = stored[0]
            entrant.cost += stored[1]
        entrant.parts = part + 1
        return True

    def _compute(self, entrants: Sequence[Entrant], part: int) -> None:
        """Run masks on a part. Those that are complete with it are stored like any other."""
        if not entrants:
            return
        masks = [entrant.mask for entrant in entrants]
        last = part + 1 == len(self._track.batches)
        number = self._evaluator.store.begin(masks) if last else 0
        losses, cost = self._evaluator.compute(masks, self._track.batches[part])
        examples = list(self._track.examples[part])
        for entrant in entrants:
            entrant.losses[examples] = losses[entrant.mask][examples]
            entrant.cost += cost
            entrant.parts = part + 1
        if not last:
            self._partials.put(part, {m: losses[m][examples] for m in masks}, cost)
            return
        for entrant in entrants:
            entrant.known = self._evaluation(entrant)
        self._evaluator.finish(number, [r.known for r in entrants if r.known is not None])

    def _drop(self, parts: int) -> None:
        """Drop the masks that are worse than each of the best so far."""
        finite = [entrant for entrant in self._running if entrant.finite]
        leaders = tuple(sorted(finite, key=lambda entrant: entrant.mean)[: self._winners])
        if len(leaders) < self._winners:
            return
        for entrant in self._running:
            if not entrant.finite:
                entrant.beaten_by = leaders
        rest = [entrant for entrant in finite if entrant not in leaders]
        seen = self._track.seen(parts)
        if not rest or len(seen) < self._minimum:
            return
        leading = np.stack([leader.losses[seen] for leader in leaders])
        differences = np.stack([entrant.losses[seen] for entrant in rest])[:, None] - leading
        total = len(self._track.weights)
        found = t_statistics(differences, self._track.weights[seen], total).min(1)
        for entrant, statistic in zip(rest, found, strict=True):
            if statistic > critical(len(seen), self._level):
                entrant.beaten_by = leaders

    def _evaluation(self, entrant: Entrant) -> Evaluation:
        """The evaluation of a mask on the parts that it was run on."""
        weights = self._evaluator.objective.weights
        if entrant.parts == len(self._track.batches):
            whole = Evaluation.of(entrant.mask, entrant.losses, weights, entrant.cost)
            return entrant.known or whole
        seen = self._track.seen(entrant.parts)
        some = None if weights is None else self._track.weights[seen].tolist()
        part = Evaluation.of(entrant.mask, entrant.losses[seen], some, entrant.cost)
        return replace(part, losses=tuple(entrant.losses.tolist()), complete=False)
