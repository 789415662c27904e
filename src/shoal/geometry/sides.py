"""The two tasks of a geometry: their texts, and what the model loses on them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.core.means import known_mean
from shoal.core.records import Mean
from shoal.geometry.stack import Texts


@dataclass(frozen=True)
class Side:
    """One task as geometry sees it.

    Attributes:
        texts: Its inputs, for everything about hidden states.
        losses: The loss of each example [E] of the model as it is at that moment, with whatever
            interventions are in place; lower is better.
        metric: What that loss is, in a few words.
        more: Inputs that inverse surrogates are fitted on, where those of profiles are too few.
    """

    texts: Texts
    losses: Callable[[], NDArray[np.float64]]
    metric: str
    more: Texts | None = None

    @property
    def fitting(self) -> Texts:
        """Inputs that inverse surrogates are fitted on."""
        return self.texts if self.more is None else self.more

    def loss(self, seed: int = 0) -> Mean:
        """Mean loss of the model as it is now, with its interval over examples.

        A loss that is no number counts as infinite: an intervention that drives the model out of
        its number range must not be judged by the examples that survive it.

        Args:
            seed: Seed of the bootstrap.
        """
        found = np.asarray(self.losses(), np.float64)
        return known_mean(np.where(np.isnan(found), np.inf, found), seed)
