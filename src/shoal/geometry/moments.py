"""Sums over tokens from which a block's linear surrogate is fitted, without keeping the tokens.

Of what enters a block, x, and what it adds, u = y - x, a fit needs the means and the centred
products sum (x - mean)(x - mean)^T and sum (x - mean)(u - mean)^T. They are kept centred and joined
by Chan, Golub and LeVeque's update (1979): hidden states lie far from 0, and the difference of two
large sums would leave nothing of what varies. Distances between tokens are no such sums, so a few
tokens are kept as they are.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shoal.core.errors import NotFiniteError, UsageError

KEEP = 512
"""Tokens kept for distances: 130 816 pairs."""


class Moments:
    """Sums over the tokens of one block, one class of positions and one distribution.

    Independent of how the tokens are cut into chunks; memory 16 d^2 bytes.

    Attributes:
        count: Tokens seen, n.
        input_mean: Mean of x [d].
        update_mean: Mean of u [d].
        xx: Centred sum of x x^T [d, d].
        xu: Centred sum of x u^T [d, d].
        uu: Centred sum of |u|^2.
        yy: Centred sum of |y|^2.
        raw: Sum of |x|^2 + |y|^2, not centred: what rounding is measured by.
    """

    def __init__(
        self,
        width: int,
        seed: int = 0,
        *,
        keep: int = KEEP,
        device: torch.device | str = "cpu",
    ) -> None:
        """Start empty.

        Args:
            width: Numbers in a state, d.
            seed: Decides which tokens are kept for distances.
            keep: How many.
            device: Where sums are made.
        """
        if width < 1 or keep < 2:
            raise UsageError(
                f"moments need a width of 1 or more and 2 or more tokens to keep; got width "
                f"{width} and keep {keep}."
            )
        self.seed, self.keep = seed, keep
        self._seeds = {seed}
        self.count = 0

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64, device=device)

        self.input_mean, self.update_mean = zeros(width), zeros(width)
        self.xx, self.xu = zeros(width, width), zeros(width, width)
        self.uu = self.yy = self.raw = 0.0
        self._rng = np.random.default_rng(seed)
        self._keys = np.empty(0)
        self._inputs = self._outputs = torch.empty(0, width, device=device)

    @property
    def width(self) -> int:
        """Numbers in a state, d."""
        return len(self.input_mean)

    @property
    def output_mean(self) -> Tensor:
        """Mean of y [d]."""
        return self.input_mean + self.update_mean

    @property
    def sample(self) -> tuple[Tensor, Tensor]:
        """The kept tokens' x and y, [k, d] each, k at most `keep`: drawn uniformly, by the seed."""
        return self._inputs, self._outputs

    def add(self, inputs: Tensor, outputs: Tensor) -> None:
        """Count more tokens.

        Args:
            inputs: What enters the block [n, d].
            outputs: What leaves it, of the same tokens [n, d].

        Raises:
            UsageError: If the shapes are others.
            NotFiniteError: If a state is not finite; nothing is counted then.
        """
        if inputs.ndim != 2 or inputs.shape != outputs.shape or inputs.shape[1] != self.width:
            raise UsageError(
                f"moments of width {self.width} take two tables [n, {self.width}] of states; got "
                f"{list(inputs.shape)} and {list(outputs.shape)}."
            )
        self._check(inputs, "enter")
        self._check(outputs, "leave")
        if not len(inputs):
            return
        inputs, outputs = (t.detach().to(self.xx.device) for t in (inputs, outputs))
        x, y = inputs.double(), outputs.double()
        self.raw += float(x.square().sum() + y.square().sum())
        u = y - x
        input_mean, update_mean = x.mean(0), u.mean(0)
        x, u = x - input_mean, u - update_mean
        self.xx.addmm_(x.T, x)
        self.xu.addmm_(x.T, u)
        self.uu += float(u.square().sum())
        self.yy += float((x + u).square().sum())
        self._join(len(x), input_mean, update_mean)
        self._choose(self._rng.random(len(x)), inputs, outputs)

    def absorb(self, other: "Moments") -> None:
        """Count the tokens of another, as if they had been added here.

        The sums are those of all tokens; which tokens are kept depends on the parts' seeds.

        Raises:
            UsageError: If the widths differ, or a seed is in both: parts with one seed would keep
                tokens at the same places.
        """
        if other.width != self.width or other._seeds & self._seeds:
            raise UsageError(
                "moments are joined if their widths agree and they have no seed in common; got "
                f"widths {self.width} and {other.width}, seeds {sorted(self._seeds)} and "
                f"{sorted(other._seeds)}."
            )
        self._seeds |= other._seeds
        if not other.count:
            return
        device = self.xx.device
        self.raw += other.raw
        self.xx += other.xx.to(device)
        self.xu += other.xu.to(device)
        self.uu += other.uu
        self.yy += other.yy
        self._join(other.count, other.input_mean.to(device), other.update_mean.to(device))
        self._choose(other._keys, other._inputs.to(device), other._outputs.to(device))

    def _join(self, count: int, input_mean: Tensor, update_mean: Tensor) -> None:
        """Add what the distance between two parts' means contributes, and join the means."""
        dx, du = input_mean - self.input_mean, update_mean - self.update_mean
        total = self.count + count
        weight = self.count * count / total
        self.xx.addr_(dx, dx, alpha=weight)
        self.xu.addr_(dx, du, alpha=weight)
        self.uu += weight * float(du.square().sum())
        self.yy += weight * float((dx + du).square().sum())
        self.input_mean += dx * (count / total)
        self.update_mean += du * (count / total)
        self.count = total

    def _choose(self, keys: NDArray[np.float64], inputs: Tensor, outputs: Tensor) -> None:
        """Keep the tokens with the least keys, in the order of their keys."""
        joined = np.concatenate([self._keys, keys])
        best = np.argsort(joined, kind="stable")[: self.keep]
        rows = torch.from_numpy(best).to(self.xx.device)
        self._keys = joined[best]
        self._inputs = torch.cat([self._inputs, inputs])[rows]
        self._outputs = torch.cat([self._outputs, outputs])[rows]

    @staticmethod
    def _check(states: Tensor, verb: str) -> None:
        broken = int((~states.isfinite().all(1)).sum())
        if broken:
            raise NotFiniteError(
                f"{broken} of {len(states)} states that {verb} the block are not finite. Look for "
                "NaN or infinite weights, or try --dtype float32."
            )
