"""Affine maps of hidden states: what an intervention applies, its inverse and its controls.

An inverse that restores a model proves little unless other maps of the same size do not: a random
map keeps the Frobenius norm and no direction, a rotated one keeps how far each state is moved and
not where to.
"""

from dataclasses import dataclass
from typing import Literal, Protocol, Self

import torch
from torch import Tensor

from shoal.core.errors import NotFiniteError, UsageError

Inverse = Literal["ridge", "truncated"]


@dataclass(frozen=True, eq=False)
class AffineMap:
    """h -> after + (h - before) @ matrix.T.

    Attributes:
        matrix: [d, d].
        before: The centre of the states that come in [d].
        after: Where it goes [d].
    """

    matrix: Tensor
    before: Tensor
    after: Tensor

    def __post_init__(self) -> None:
        shapes = tuple(self.matrix.shape), tuple(self.before.shape), tuple(self.after.shape)
        width = len(self.before) if self.before.ndim == 1 else -1
        if shapes != ((width, width), (width,), (width,)):
            raise UsageError(
                f"a map of states needs a matrix [d, d] and two centres [d]; got {list(shapes)}."
            )

    @property
    def width(self) -> int:
        """Numbers in a state, d."""
        return len(self.before)

    def __call__(self, states: Tensor) -> Tensor:
        """Map states [..., d]; computed in the map's type, returned in that of the states."""
        moved = (states.to(self.matrix.dtype) - self.before) @ self.matrix.T
        return (self.after + moved).to(states.dtype)

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> Self:
        """The same map elsewhere or in another type of numbers."""
        kind = dtype or self.matrix.dtype
        return type(self)(*(t.to(device, kind) for t in (self.matrix, self.before, self.after)))


class Mapped(Protocol):
    """What has a map: a `Surrogate`."""

    @property
    def map(self) -> AffineMap:
        """The map from what enters a block to what leaves it."""
        ...


def inverse_map(surrogate: Mapped, ridge: float, form: Inverse = "ridge") -> AffineMap:
    """The map that takes what left a block back to what entered it.

    With A = P diag(s) Q^T the pseudo-inverse is Q diag(f(s)) P^T. Let c be `ridge` times the mean
    of s^2. "ridge": f(s) = s / (s^2 + c), which solves min |A h - y|^2 + c |h|^2; "truncated":
    f(s) = 1 / s where s^2 > c and 0 elsewhere. Both are the inverse at ridge 0 if A has one;
    singular values within rounding of 0 always count as 0.

    Args:
        surrogate: The linear surrogate of the block.
        ridge: Relative to the mean squared singular value of A, 0 or more.
        form: How small singular values are kept from growing large.

    Raises:
        UsageError: If the ridge or the form is not one of those.
        NotFiniteError: If A is not finite.
    """
    forward = surrogate.map
    if not 0 <= ridge < torch.inf:
        raise UsageError(f"the ridge of an inverse is 0 or more and finite; got {ridge}.")
    if form not in ("ridge", "truncated"):
        raise UsageError(f'unknown form of inverse "{form}". Known: ridge, truncated.')
    if not forward.matrix.isfinite().all():
        raise NotFiniteError("the surrogate to invert is not finite; fit it on finite states.")
    left, values, right = torch.linalg.svd(forward.matrix)
    penalty = ridge * values.square().mean()
    least = values.max() * len(values) * torch.finfo(values.dtype).eps
    kept = values > least
    if form == "truncated":
        kept &= values.square() > penalty
        penalty = torch.zeros_like(penalty)
    inverted = torch.where(kept, values / (values.square() + penalty), 0.0)
    return AffineMap((right.T * inverted) @ left.T, forward.after, forward.before)


def haar(width: int, seed: int) -> Tensor:
    """An orthogonal matrix drawn uniformly [d, d], float64.

    The signs of the triangular factor are divided out, without which the QR decomposition of a
    Gaussian matrix is not uniform (Mezzadri 2007).
    """
    generator = torch.Generator().manual_seed(seed)
    gaussian = torch.randn(width, width, generator=generator, dtype=torch.float64)
    found, triangular = torch.linalg.qr(gaussian)
    signs = torch.where(triangular.diagonal() < 0, -1.0, 1.0)
    return found * signs


def random_map(one: AffineMap, seed: int) -> AffineMap:
    """A random orthogonal map, scaled to the Frobenius norm of another, with the same centres.

    Applied after a block it is the control of an inverse surrogate: as large, without its
    directions.
    """
    scale = torch.linalg.matrix_norm(one.matrix) / one.width**0.5
    return AffineMap(_haar_like(one, seed) * scale, one.before, one.after)


def rotated(one: AffineMap, seed: int) -> AffineMap:
    """A map that moves every state as far as another does, in a direction turned at random.

    h + Q (map(h) - h) with Q orthogonal, one Q for all states: the control that changes states
    exactly as much.
    """
    turn = _haar_like(one, seed)
    identity = torch.eye(one.width, dtype=one.matrix.dtype, device=one.matrix.device)
    return AffineMap(
        matrix=identity + turn @ (one.matrix - identity),
        before=one.before,
        after=one.before + turn @ (one.after - one.before),
    )


def _haar_like(one: AffineMap, seed: int) -> Tensor:
    return haar(one.width, seed).to(one.matrix.device, one.matrix.dtype)
