"""Choosing masks on the selection functions: TALE, and what it must beat.

Searching on a task always finds something that does well on the functions searched. What TALE
finds is therefore held, on other functions, against the best removal of one block, against random
masks of the same size, and against the best of as many random masks as TALE itself looked at.
"""

from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from shoal.config.searches import TaleConfig
from shoal.config.shifts import ShiftSettings
from shoal.core.errors import UsageError
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.engine.driver import drive
from shoal.lab.records import Selection, Step
from shoal.lab.streams import MASKS
from shoal.lab.tasks import Task, stream_of
from shoal.searches.base import best_of


class _NoSignals:
    """A lab model has no scores besides its losses; TALE asks for none."""

    def units(self, name: str) -> NoReturn:
        raise UsageError(f"the lab has no score {name}.")

    def windows(self, name: str, length: int) -> NoReturn:
        raise UsageError(f"the lab has no score {name}.")

    def gradients(self) -> NoReturn:
        raise UsageError("the lab has no gradients by gates.")


def select(task: Task, settings: ShiftSettings) -> Selection:
    """Choose masks on the selection functions of a task.

    Raises:
        UsageError: If the model has a single block, of which none can be removed.
        NotFiniteError: If the dense model's loss is not finite.
    """
    depth = task.selection.model.depth
    if depth < 2:
        raise UsageError("a lab model of one block has none to remove. Train a deeper one.")
    space = SearchSpace.of_blocks(depth)
    dense = task.selection.evaluate([space.dense])[0]
    config = TaleConfig(epsilon=settings.epsilon * dense.mean, floor=settings.floor, result="best")
    most = min(depth - 1, settings.most or depth)
    outcome = drive(config, space, most, 0, task.selection, _NoSignals())
    size = outcome.best.mask.num_blocks
    searched = outcome.evaluations if settings.search_masks is None else settings.search_masks
    random = random_masks(
        space,
        size,
        max(searched, settings.random_masks),
        np.random.default_rng(stream_of(task, MASKS)),
    )
    tried = task.selection.evaluate(random[:searched])
    return Selection(
        task=task.name,
        functions=len(task.selection.prompts),
        dense=dense.mean,
        epsilon=config.epsilon,
        path=tuple(
            Step(mask=Mask.parse(step["mask"], depth), loss=step["loss"])
            for step in outcome.details["path"]
        ),
        stopped_because=outcome.details["stopped_because"],
        evaluations=outcome.evaluations,
        best=outcome.best.mask,
        bsba=Mask.parse(outcome.details["bsba"], depth),
        single=best_of(task.selection.evaluate(space.extensions(space.dense))).mask,
        random=tuple(random[: settings.random_masks]),
        random_best=best_of(tried).mask if tried else None,
        random_searched=len(tried),
    )


def random_masks(
    space: SearchSpace, size: int, count: int, rng: np.random.Generator
) -> Sequence[Mask]:
    """Distinct random masks of some blocks, each with the same chance; fewer where fewer exist.

    Args:
        space: What may be removed.
        size: Blocks that each removes; there are no masks of 0.
        count: How many.
        rng: Source of randomness.
    """
    wanted = min(count, space.size(size)) if size else 0
    found: dict[Mask, None] = {}
    while len(found) < wanted:
        found[space.sample(rng, size)] = None
    return list(found)
