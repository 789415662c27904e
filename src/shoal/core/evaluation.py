"""One mask under one objective: its per-example losses and what they say."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, isfinite, nan
from typing import Self

import numpy as np
from numpy.typing import NDArray

from shoal.core.mask import Mask


@dataclass(frozen=True)
class Cost:
    """What an evaluation took when it was computed; those run together share theirs equally.

    Attributes:
        blocks: Block passes over one micro-batch.
        seconds: Wall time.
    """

    blocks: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.blocks + other.blocks, self.seconds + other.seconds)


@dataclass(frozen=True)
class Evaluation:
    """The losses of one masked model, one per example; lower is better.

    Attributes:
        mask: What was removed.
        losses: One loss per calibration example, in the order of the data.
        mean: Weighted mean of the losses; weights are the objective's (tokens, or one each).
        stderr: Standard error of the mean over examples; NaN with a single example.
        complete: Whether every example was evaluated; else mean and error are of those that were,
            and the losses of the others are NaN.
        cost: What it took.
    """

    mask: Mask
    losses: tuple[float, ...]
    mean: float
    stderr: float
    complete: bool = True
    cost: Cost = field(default=Cost(), compare=False)

    @classmethod
    def of(
        cls,
        mask: Mask,
        losses: Sequence[float] | NDArray[np.float64],
        weights: Sequence[float] | None = None,
        cost: Cost = Cost(),
    ) -> Self:
        """Summarise per-example losses.

        The standard error is that of the ratio sum(w x) / sum(w), linearised over examples; with
        equal weights it is the usual s / sqrt(n).

        Args:
            mask: What was removed.
            losses: One loss per example.
            weights: One positive weight per example; None means one each.
            cost: What they took.
        """
        x = np.asarray(losses, float)
        w = np.ones_like(x) if weights is None else np.asarray(weights, float)
        n = len(x)
        # Losses of a broken mask may be infinite or overflow: no warning, the mask ranks last.
        with np.errstate(all="ignore"):
            mean = float((w * x).sum() / w.sum()) if n else nan
            if n > 1 and isfinite(mean):
                influence = w * (x - mean) / w.mean()
                stderr = float(np.sqrt((influence**2).sum() / (n - 1) / n))
            else:
                stderr = nan
        return cls(mask, tuple(x.tolist()), mean, stderr, cost=cost)

    @property
    def finite(self) -> bool:
        """Whether the mean loss is a number."""
        return isfinite(self.mean)

    @property
    def rank_key(self) -> float:
        """The mean loss; infinity, which ranks last, where it is not finite or incomplete."""
        return self.mean if self.finite and self.complete else inf
