"""Driving a search: feeds it evaluations, counts them, and checks what it returns."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shoal.config.base import Named
from shoal.core.errors import BudgetError, NotFiniteError
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.engine.evaluator import Evaluator
from shoal.engine.trie import naive_passes, shared_passes
from shoal.searches.base import Problem, SearchRun


@dataclass(frozen=True)
class Outcome:
    """What a search found.

    Attributes:
        best: The evaluation of the mask that it returned.
        dense: The evaluation of the dense model.
        evaluations: Distinct masks that the search asked for; the dense one comes on top.
        trace: Best loss of each batch.
    """

    best: Evaluation
    dense: Evaluation
    evaluations: int
    trace: tuple[float, ...]


@dataclass(frozen=True)
class Forecast:
    """What a search will cost, found by running it on made-up losses.

    Attributes:
        evaluations: Distinct masks that the search asks for; the dense one comes on top.
        shared: Block passes with shared prefixes, per micro-batch, those of the dense one included.
        naive: The same with one forward per mask.
        largest_batch: Most masks in one batch.
    """

    evaluations: int
    shared: int
    naive: int
    largest_batch: int


def start(config: Named, space: SearchSpace, k: int, seed: int) -> SearchRun:
    """Start a search."""
    search = config.load()
    run: SearchRun = search(Problem(space, k, np.random.default_rng(seed)), config)
    return run


def forecast(config: Named, space: SearchSpace, k: int, seed: int) -> Forecast:
    """Run a search on made-up losses to see how much it evaluates.

    Raises:
        BudgetError: If the search itself finds the problem too large.
    """
    noise = random.Random(seed)
    seen: set[Mask] = set()
    shared = naive = space.depth
    largest = 1
    run = start(config, space, k, seed)
    try:
        masks = next(run)
        while True:
            new = [m for m in dict.fromkeys(masks) if m not in seen and m != space.dense]
            seen.update(masks)
            shared += shared_passes(new)
            naive += naive_passes(new)
            largest = max(largest, len(new))
            masks = run.send([Evaluation.of(m, [noise.random()]) for m in masks])
    except StopIteration:
        return Forecast(len(seen), shared, naive, largest)


def drive(
    config: Named,
    space: SearchSpace,
    k: int,
    seed: int,
    evaluator: Evaluator,
    *,
    budget: int | None = None,
    on_best: Callable[[Evaluation, int], None] | None = None,
) -> Outcome:
    """Run a search to its end.

    Args:
        config: Which search, with its options.
        space: What may be removed.
        k: How many units to remove.
        seed: Seed of the search.
        evaluator: Answers masks with losses.
        budget: Most distinct masks that the search may ask for.
        on_best: Called after each batch with its best evaluation and the masks asked so far.

    Raises:
        BudgetError: If the budget would be exceeded.
        NotFiniteError: If the dense model's loss is not finite.
        RuntimeError: If the search returns a mask that it must not.
    """
    seen: set[Mask] = set()
    trace: list[float] = []
    dense = evaluator.evaluate([space.dense])[0]
    if not dense.finite:
        raise NotFiniteError(
            "the dense model's own loss is not finite on these data, so no mask can be judged. "
            "Look for NaN or infinite weights, or try --dtype float32."
        )
    run = start(config, space, k, seed)
    try:
        masks = next(run)
        while True:
            seen.update(masks)
            if budget is not None and len(seen) > budget:
                raise BudgetError(
                    f"the search needs more than {budget} evaluations. Everything evaluated so "
                    "far is kept: raise --budget-evaluations and run again to go on."
                )
            evaluations = evaluator.evaluate(masks)
            leader = min(evaluations, key=lambda e: e.rank_key)
            trace.append(leader.mean)
            if on_best is not None:
                on_best(leader, len(seen))
            masks = run.send(evaluations)
    except StopIteration as stop:
        mask: Mask = stop.value
    if not space.is_valid(mask) or len(space.removed_units(mask)) != k:
        raise RuntimeError(f"search {config.name} returned {mask}, which does not remove {k} units")
    best = evaluator.evaluate([mask])[0]
    return Outcome(best, dense, len(seen), tuple(trace))
