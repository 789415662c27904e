"""Distances between all pairs of some vectors, without the tensor of their differences."""

import torch
from torch import Tensor

CANCELLED = 1e-5
"""Squared distance over squared lengths below which |x|^2 + |y|^2 - 2 x.y has lost digits."""

_NUMBERS = 1 << 22
"""Numbers held at once when distances are taken from differences."""


def pair_distances(vectors: Tensor) -> Tensor:
    """Euclidean distances; pairs that lie close to one another are computed by their difference.

    Args:
        vectors: Float64 [B, P, d]; the nearer their mean to zero, the fewer pairs are that close.

    Returns:
        Distances [B, P, P].
    """
    squares = vectors.square().sum(-1)
    scale = squares[:, :, None] + squares[:, None, :]
    found = torch.baddbmm(scale, vectors, vectors.mT, alpha=-2)
    near = (found < CANCELLED * scale).triu(1).nonzero()
    found = found.clamp_min_(0).sqrt_()
    found.diagonal(dim1=1, dim2=2).zero_()
    for part in near.split(max(1, _NUMBERS // vectors.shape[-1])):
        group, one, other = part.unbind(1)
        exact = (vectors[group, one] - vectors[group, other]).square().sum(-1).sqrt()
        found[group, one, other] = exact
        found[group, other, one] = exact
    return found


def pair_cosines(vectors: Tensor) -> Tensor:
    """1 - cosine; a vector of length zero counts as at right angles to all others.

    Args:
        vectors: Float64 [B, P, d], not centred.

    Returns:
        Cosine distances [B, P, P], zero on the diagonal.
    """
    lengths = vectors.square().sum(-1, keepdim=True).sqrt()
    units = vectors / lengths.where(lengths > 0, 1.0)
    found = (1 - units @ units.mT).clamp_min_(0)
    found.diagonal(dim1=1, dim2=2).zero_()
    return found
