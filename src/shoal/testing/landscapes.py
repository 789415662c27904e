"""Synthetic losses over masks, and an evaluator of them: searches without a model.

All drawn numbers are small multiples of 1/1024, so every sum is exact in floating point: two masks
tie exactly when their true losses are equal, in whatever order the terms are added.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import Protocol, Self

import numpy as np

from shoal.core.budget import Wanted, budget_of
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask, Part, Site, sublayers
from shoal.core.space import SearchSpace
from shoal.engine.store import Store

GRID = 1024
"""Costs are whole numbers of 1 / GRID."""

SHARE = {Part.BLOCK: 1.0, Part.ATTN: 0.25, Part.MLP: 0.75}
"""How much of a block's cost the removal of one of its parts brings."""


class Landscape(Protocol):
    """A loss for every mask of a model with `depth` blocks."""

    @property
    def depth(self) -> int:
        """Number of blocks of the dense model."""
        ...

    def losses(self, mask: Mask) -> tuple[float, ...]:
        """One loss per example."""
        ...


@dataclass(frozen=True)
class Additive:
    """Every removal costs the same whatever else is removed: separable.

    The k cheapest units are the best mask of k units, which one-shot ranking, greedy deletion and
    any sound search must find.

    Attributes:
        costs: Cost of each block, for each example: `costs[example][block]`.
        base: The loss of the dense model.
    """

    costs: tuple[tuple[float, ...], ...]
    base: float = 1.0

    @classmethod
    def random(cls, depth: int, seed: int = 0, examples: int = 4) -> Self:
        """Draw costs; about one in ten is below zero, a block that the model is better without."""
        drawn = np.random.default_rng(seed).integers(-GRID // 10, GRID, (examples, depth)) / GRID
        return cls(tuple(map(tuple, drawn.tolist())))

    @classmethod
    def flat(cls, depth: int, examples: int = 4) -> Self:
        """All masks tie."""
        return cls(((0.0,) * depth,) * examples)

    @property
    def depth(self) -> int:
        """Number of blocks of the dense model."""
        return len(self.costs[0])

    def losses(self, mask: Mask) -> tuple[float, ...]:
        """One loss per example."""
        removed = removed_shares(mask)
        return tuple(self.base + float(np.dot(costs, removed)) for costs in self.costs)


@dataclass(frozen=True)
class Pairwise:
    """Removals interact in pairs, so that ranking blocks one by one misleads.

    Attributes:
        additive: The costs of single removals.
        couplings: Extra cost of removing both of two blocks, for each pair i < j.
    """

    additive: Additive
    couplings: dict[tuple[int, int], float]

    @classmethod
    def random(cls, depth: int, seed: int = 0, examples: int = 4, strength: float = 1.0) -> Self:
        """Draw costs, and couplings of both signs up to `strength`."""
        limit = max(1, round(GRID * strength))
        drawn = np.random.default_rng([seed, 1]).integers(-limit, limit + 1, (depth, depth)) / GRID
        couplings = {(i, j): float(drawn[i, j]) for j in range(depth) for i in range(j)}
        return cls(Additive.random(depth, seed, examples), couplings)

    @property
    def depth(self) -> int:
        """Number of blocks of the dense model."""
        return self.additive.depth

    def losses(self, mask: Mask) -> tuple[float, ...]:
        """One loss per example; the couplings are the same for all."""
        removed = removed_shares(mask)
        extra = sum(c * removed[i] * removed[j] for (i, j), c in self.couplings.items())
        return tuple(loss + float(extra) for loss in self.additive.losses(mask))


@dataclass(frozen=True)
class Sublayers:
    """Every sub-layer has its own cost, and sub-layers interact in pairs.

    A block costs what its attention and its MLP cost together, and what their coupling adds.

    Attributes:
        costs: Cost of each sub-layer for each example, in the row attention 0, MLP 0, ...
        couplings: Extra cost of removing both of two places, for each pair p < q.
    """

    costs: tuple[tuple[float, ...], ...]
    couplings: dict[tuple[int, int], float] = field(default_factory=dict)

    @classmethod
    def random(cls, depth: int, seed: int = 0, examples: int = 4, strength: float = 0.0) -> Self:
        """Draw costs, of which those of MLPs are larger, and couplings up to `strength`."""
        rng = np.random.default_rng([seed, 2])
        drawn = rng.integers(-GRID // 20, GRID // 2, (examples, depth, 2)) * [1, 2] / GRID
        limit, places = round(GRID * strength), range(2 * depth)
        extra = rng.integers(-limit, limit + 1, (2 * depth, 2 * depth)) / GRID
        couplings = {(p, q): float(extra[p, q]) for q in places for p in range(q)}
        costs = drawn.reshape(examples, -1).tolist()
        return cls(tuple(map(tuple, costs)), couplings if limit else {})

    @property
    def depth(self) -> int:
        """Number of blocks of the dense model."""
        return len(self.costs[0]) // 2

    def losses(self, mask: Mask) -> tuple[float, ...]:
        """One loss per example; the couplings are the same for all."""
        gone = mask.places
        extra = 1.0 + sum(c for (p, q), c in self.couplings.items() if p in gone and q in gone)
        return tuple(extra + sum(costs[p] for p in sorted(gone)) for costs in self.costs)


@dataclass(frozen=True)
class Broken:
    """Another landscape with masks whose loss is not finite.

    Attributes:
        inner: The landscape.
        sites: A mask that removes any of these is broken.
        value: The loss of the first example of a broken mask.
    """

    inner: Landscape
    sites: frozenset[Site]
    value: float = nan

    @classmethod
    def at(cls, inner: Landscape, blocks: Iterable[int], value: float = nan) -> Self:
        """Break the masks that remove any of some blocks."""
        return cls(inner, frozenset(Site(b) for b in blocks), value)

    @property
    def depth(self) -> int:
        """Number of blocks of the dense model."""
        return self.inner.depth

    def losses(self, mask: Mask) -> tuple[float, ...]:
        """One loss per example."""
        losses = self.inner.losses(mask)
        return (self.value, *losses[1:]) if mask.sublayers & sublayers(self.sites) else losses


class Stopped(Exception):
    """The evaluator was told to stop here, as if the process were killed."""


@dataclass
class LandscapeEvaluator:
    """Evaluates masks of a landscape, with the interface of `shoal.engine.evaluator.Evaluator`.

    Example:
        >>> evaluator = LandscapeEvaluator(Additive.flat(6))
        >>> evaluator.evaluate([Mask.of(6, [1])])[0].mean, evaluator.computed
        (1.0, 1)

    Attributes:
        landscape: The losses.
        store: Where evaluations are kept; None keeps them in memory.
        stop_after: Batches that are computed before `Stopped` is raised; the next one is noted
            in the store and then lost, as by a kill.
        asked: Every set of masks that was asked for.
        runs: Every set of masks that was not known and had to be computed.
    """

    landscape: Landscape
    store: Store | None = None
    stop_after: int | None = None
    asked: list[list[Mask]] = field(default_factory=list)
    runs: list[list[Mask]] = field(default_factory=list)
    _known: dict[Mask, Evaluation] = field(default_factory=dict)

    @property
    def computed(self) -> int:
        """How many masks were computed."""
        return sum(map(len, self.runs))

    def known(self, mask: Mask) -> Evaluation | None:
        """The evaluation of a mask if no work is needed for it."""
        return self._known.get(mask) if self.store is None else self.store.get(mask)

    def evaluate(self, masks: Sequence[Mask]) -> list[Evaluation]:
        """Evaluate masks: one evaluation each, in the same order.

        Raises:
            Stopped: Where `stop_after` says so.
        """
        self.asked.append(list(masks))
        found = {mask: self.known(mask) for mask in masks}
        missing = [mask for mask, evaluation in found.items() if evaluation is None]
        if missing:
            found.update(self._compute(missing))
        return [evaluation for m in masks if (evaluation := found[m]) is not None]

    def _compute(self, masks: list[Mask]) -> dict[Mask, Evaluation]:
        number = self.store.begin(masks) if self.store is not None else 0
        if self.stop_after is not None and len(self.runs) >= self.stop_after:
            raise Stopped
        computed = {m: Evaluation.of(m, self.landscape.losses(m)) for m in masks}
        if self.store is not None:
            self.store.commit(number, computed.values())
        self._known.update(computed)
        self.runs.append(masks)
        return computed


def removed_shares(mask: Mask) -> list[float]:
    """How much of each block a mask removes, 0 to 1."""
    shares = [0.0] * mask.depth
    for site in mask.removed:
        shares[site.layer] += SHARE[site.part]
    return shares


def optimum(landscape: Landscape, space: SearchSpace, k: Wanted) -> Evaluation:
    """The best mask that meets a budget, by looking at all of them; the first of equals."""
    masks = (Evaluation.of(m, landscape.losses(m)) for m in budget_of(k).masks(space))
    return min(masks, key=lambda e: e.rank_key)
