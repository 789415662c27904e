"""Measuring a model under one intervention after another, always against the dense ID profile."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Self

from shoal.core.mask import Mask
from shoal.geometry.profiles import ProfileTable, profile
from shoal.geometry.records import Intervention, Point
from shoal.geometry.sides import Side
from shoal.geometry.stack import Stack

OnStep = Callable[[int], None]
"""Told how many steps have just been done."""


@dataclass(frozen=True)
class Bench:
    """A model with its two tasks, and the profile that gaps are measured to.

    Attributes:
        stack: The model.
        id: The task that it is adapted to.
        ood: The shifted one.
        reference: The dense model's profile on the former.
        seed: Seed of the intervals.
        on_step: Told of every step done: a point measured, or a surrogate fitted.
    """

    stack: Stack
    id: Side
    ood: Side
    reference: ProfileTable
    seed: int = 0
    on_step: OnStep | None = None

    @classmethod
    def of(
        cls, stack: Stack, id: Side, ood: Side, seed: int = 0, on_step: OnStep | None = None
    ) -> Self:
        """A bench whose reference is found by one pass over the ID texts, with nothing in place."""
        return cls(stack, id, ood, profile(stack, id.texts), seed, on_step)

    def point(
        self,
        intervention: Intervention,
        mask: Mask,
        group: str,
        placed: AbstractContextManager[Any],
        **details: Any,
    ) -> Point:
        """Measure the model under an intervention.

        Args:
            intervention: Its kind.
            mask: Where it acts.
            group: Which sites these are.
            placed: Puts it in place.
            details: Further fields of the point.
        """
        with placed:
            loss_id, loss_ood = self.id.loss(self.seed), self.ood.loss(self.seed)
            found = profile(self.stack, self.ood.texts)
        point = Point(
            intervention=intervention,
            sites=str(mask),
            group=group,
            loss_id=loss_id,
            loss_ood=loss_ood,
            gaps=found.gaps(self.reference),
            **details,
        )
        self.done()
        return point

    def done(self) -> None:
        """Tell that a step is done."""
        if self.on_step is not None:
            self.on_step(1)
