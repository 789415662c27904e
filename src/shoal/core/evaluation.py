"""One mask under one objective: its per-example losses and what they say."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, nan
from typing import Self

import numpy as np

from shoal.core.mask import Mask


@dataclass(frozen=True)
class Evaluation:
    """The losses of one masked model, one per example; lower is better.

    Attributes:
        mask: What was removed.
        losses: One loss per calibration example, in the order of the data.
        mean: Weighted mean of the losses; weights are the objective's (tokens, or one each).
        stderr: Standard error of the mean over examples; NaN with a single example.
    """

    mask: Mask
    losses: tuple[float, ...]
    mean: float
    stderr: float

    @classmethod
    def of(
        cls, mask: Mask, losses: Sequence[float], weights: Sequence[float] | None = None
    ) -> Self:
        """Summarise per-example losses.

        The standard error is that of the ratio sum(w x) / sum(w), linearised over examples; with
        equal weights it is the usual s / sqrt(n).

        Args:
            mask: What was removed.
            losses: One loss per example.
            weights: One positive weight per example; None means one each.
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
        return cls(mask, tuple(x.tolist()), mean, stderr)

    @property
    def finite(self) -> bool:
        """Whether the mean loss is a number."""
        return isfinite(self.mean)

    @property
    def rank_key(self) -> float:
        """The mean loss, or infinity where it is not finite: such a mask ranks last."""
        return self.mean if self.finite else inf
