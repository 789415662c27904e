"""What a state score is: a number per window of blocks from the states that enter and leave it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Ends:
    """Products of the states at the two ends of a window, at P positions.

    Attributes:
        dot: Inner product of the entering and the leaving state, float64 [P].
        entering: Norm of the state that enters, float64 [P].
        leaving: Norm of the state that leaves, float64 [P].
        change: Norm of their difference, float64 [P].
    """

    dot: Tensor
    entering: Tensor
    leaving: Tensor
    change: Tensor

    @classmethod
    def of(cls, entering: Tensor, leaving: Tensor) -> "Ends":
        """Take the products.

        The difference is formed before its norm, because the expanded square of a small one would
        cancel.

        Args:
            entering: States that enter the window [P, d].
            leaving: States that leave it [P, d].
        """
        x, y = entering.double(), leaving.double()
        return cls((x * y).sum(-1), x.norm(dim=-1), y.norm(dim=-1), (y - x).norm(dim=-1))

    @property
    def cosine(self) -> Tensor:
        """Cosine of the two states [P]; 0 where one of them vanishes."""
        size = (self.entering * self.leaving).clamp_min(torch.finfo(torch.float64).tiny)
        # Rounding may leave the range that arccos takes; NaN stays NaN.
        return (self.dot / size).clamp(-1.0, 1.0)


@dataclass(frozen=True)
class StateScore:
    """A score of a window of blocks; the window with the lowest is needed least.

    Attributes:
        summary: One line for people.
        rule: The score at each position; the mean over positions is the window's.
        last: Whether it is taken at the last position of each text only, not at all positions.
    """

    summary: str
    rule: Callable[[Ends], Tensor]
    last: bool = False
