"""Logits that are read once and compared often.

The state that leaves one site enters the next, and is compared with several others. So what depends
on it alone is kept (its softmax, the sums over its logits), and a comparison takes nothing but
inner products with the change D = y - z of the logits; c is D less its mean under p:

    |D|^2, <D, z>                cosine, parallel and orthogonal part of the logits
    KL(p || q) = log Z_y - log Z_z - E_p[D] / T,   KL(q || p) = E_q[D] / T - log Z_y + log Z_z
    Var_p(D) = E_p[c^2],         Var_r(D) = E_r[c^2] - E_r[c]^2

These are the numbers of `spaces.compare` to about 1e-14, for a fraction of its time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shoal.diagnosis.spaces import Columns, Look, Rows, compare
from shoal.diagnosis.theorems import divergence_bounds, turn

PIECE_ELEMENTS = 2**16
"""Logits that are worked on at once: a handful of float64 tables of them stay in a core's cache."""


@dataclass(frozen=True)
class Reading:
    """What one state says at some positions.

    Attributes:
        logits: Logits, float32 [R, V].
        p: Their softmax at the temperature, float64 [R, V].
        square: Their summed squares [R].
        total: Their sum [R].
        normaliser: Log-sum-exp of logits over temperature [R].
        concentration: Summed squares of p [R].
        entropy: Entropy of p, in nats [R].
        top: The likeliest token [R].
        sharpness: Summed squares of r, r_i = p_i^2 / |p|^2 [R].
    """

    logits: Tensor
    p: Tensor
    square: Tensor
    total: Tensor
    normaliser: Tensor
    concentration: Tensor
    entropy: Tensor
    top: Tensor
    sharpness: Tensor

    @property
    def finite(self) -> bool:
        """Whether every logit is a number."""
        return bool(torch.isfinite(self.total).all())


@torch.no_grad()
def read(logits: Tensor, temperature: float) -> Reading:
    """Read logits [R, V] once."""
    p = torch.empty(logits.shape, dtype=torch.float64, device=logits.device)
    sums = []
    for here in _narrow(logits):
        z = logits[here].double()
        top = z.max(-1)
        chances = ((z - top.values[:, None]) / temperature).exp_()
        whole = chances.sum(-1)
        chances /= whole[:, None]
        p[here] = chances
        normaliser = top.values / temperature + whole.log()
        entropy = normaliser - _dot(chances, z) / temperature
        square, total = _dot(z, z), z.sum(-1)
        chances *= chances
        concentration = chances.sum(-1)
        sharpness = _dot(chances, chances) / concentration**2
        sums.append((square, total, normaliser, concentration, entropy, top.indices, sharpness))
    return Reading(logits, p, *(torch.cat(parts) for parts in zip(*sums, strict=True)))


@torch.no_grad()
def differ(dense: Reading, other: Reading, look: Look) -> Columns:
    """Compare two readings of the same positions in logit and probability space.

    Args:
        dense: What the dense model says.
        other: What it is compared with.
        look: What is looked at; candidates are compared as a vocabulary of their own.

    Returns:
        The quantities of `spaces.compare`, without those of the hidden space.
    """
    if not (dense.finite and other.finite):
        # Tokens that are never said have infinite logits, whose differences are no numbers.
        return compare(Rows(None, full=dense.logits), Rows(None, full=other.logits), look)
    sums = [_sums(dense, other, here) for here in _narrow(dense.logits)]
    found = {
        name: value.cpu().numpy()
        for name, value in _formed(
            dense, other, _Sums(*map(torch.cat, zip(*sums, strict=True))), look.temperature
        ).items()
    }
    found["amplification"] = ratio(found, "probability_gap", "logit_gap")
    return found | (_inside(dense, other, look) if look.candidates else {})


def ratio(columns: Columns, top: str, bottom: str) -> NDArray[np.float64]:
    """One column over another [R]; NaN where nothing changed."""
    above, below = columns[top], columns[bottom]
    return np.divide(above, below, out=np.full_like(above, np.nan), where=below > 0)


class _Sums(NamedTuple):
    """What is summed over the vocabulary [R each]; D is the change of the logits."""

    square: Tensor
    along: Tensor
    least: Tensor
    most: Tensor
    mean_p: Tensor
    mean_q: Tensor
    shift: Tensor
    """Of c = D - E_p[D]."""
    centred_along: Tensor
    centred_square: Tensor
    centred_p: Tensor
    """c^2 under p."""
    centred_r: Tensor
    """c under p^2."""
    centred_square_r: Tensor
    """c^2 under p^2."""
    chances_square: Tensor
    """Of q - p."""
    chances_along: Tensor
    chances_size: Tensor


def _sums(dense: Reading, other: Reading, here: slice) -> _Sums:
    z, p, q = dense.logits[here].double(), dense.p[here], other.p[here]
    change = other.logits[here].double().sub_(z)
    square, along = _dot(change, change), _dot(change, z)
    least, most = change.amin(-1), change.amax(-1)
    mean_p, mean_q = _dot(p, change), _dot(q, change)
    # Less its mean, so that a shift of all logits leaves nothing but rounding.
    centred = change.sub_(mean_p[:, None])
    shift, centred_along = centred.sum(-1), _dot(centred, z)
    r = torch.mul(p, p, out=z)
    centred_r = _dot(r, centred)
    squares = centred.mul_(centred)
    of_squares = squares.sum(-1), _dot(p, squares), centred_r, _dot(r, squares)
    apart = torch.sub(q, p, out=change)
    of_chances = _dot(apart, apart), _dot(apart, p), apart.abs_().sum(-1)
    return _Sums(
        square, along, least, most, mean_p, mean_q, shift, centred_along, *of_squares, *of_chances
    )


def _formed(dense: Reading, other: Reading, sums: _Sums, temperature: float) -> dict[str, Tensor]:
    words = dense.logits.shape[1]
    logits = _Angle.of(dense.square, sums.along, sums.square)
    moved = (sums.centred_square - sums.shift**2 / words).clamp(min=0)
    plain = _Angle.of(
        dense.square - dense.total**2 / words,
        sums.centred_along - sums.shift * dense.total / words,
        moved,
    )
    chances = _Angle.of(dense.concentration, sums.chances_along, sums.chances_square)
    grown = other.normaliser - dense.normaliser
    variance_p = sums.centred_p / temperature**2
    mean_r, mean_square_r = (
        s / dense.concentration for s in (sums.centred_r, sums.centred_square_r)
    )
    variance_r = (mean_square_r - mean_r**2).clamp(min=0) / temperature**2
    reach = (sums.most - sums.least) / temperature
    mean_square = dense.square / words
    return {
        "logit_gap": logits.gap,
        "logit_parallel": logits.parallel,
        "logit_orthogonal": logits.orthogonal,
        "logit_estimate": logits.orthogonal**2 / 2,
        "logit_gap_centred": plain.gap,
        "logit_change": (moved / words).sqrt(),
        "logit_rms": mean_square.sqrt(),
        "probability_gap": chances.gap,
        "probability_estimate": variance_r / 2,
        "kl": (grown - sums.mean_p / temperature).clamp(min=0),
        "kl_estimate": variance_p / 2,
        "kl_reverse": (sums.mean_q / temperature - grown).clamp(min=0),
        "kl_bound": torch.stack(divergence_bounds(variance_p, reach)).amin(0),
        "total_variation": sums.chances_size / 2,
        "flip": (dense.top != other.top).double(),
        "entropy": dense.entropy,
        "amplification_predicted": mean_square / temperature**2 * (1 - dense.sharpness),
    }


@dataclass(frozen=True)
class _Angle:
    """How vectors x + D differ from vectors x [R]; see `theorems.Turn`."""

    gap: Tensor
    parallel: Tensor
    orthogonal: Tensor

    @classmethod
    def of(cls, square: Tensor, along: Tensor, change: Tensor) -> "_Angle":
        """From |x|^2, <D, x> and |D|^2."""
        parallel = (along / square).masked_fill(change == 0, 0.0)
        orthogonal = ((change / square - parallel**2).clamp(min=0)).sqrt()
        orthogonal = orthogonal.masked_fill(change == 0, 0.0)
        # Two vectors span a plane, and what they are beyond it does not matter.
        ones, zeros = torch.ones_like(parallel), torch.zeros_like(parallel)
        gap = turn(torch.stack([ones, zeros], -1), torch.stack([1 + parallel, orthogonal], -1)).gap
        return cls(gap, parallel, orthogonal)


def _inside(dense: Reading, other: Reading, look: Look) -> Columns:
    """The answer tokens, compared as a vocabulary of their own."""
    tokens = torch.tensor(look.candidates, device=dense.logits.device)
    alone = compare(
        Rows(None, full=dense.logits[:, tokens]),
        Rows(None, full=other.logits[:, tokens]),
        Look(look.temperature),
    )
    mass = dense.p[:, tokens].sum(-1).cpu().numpy()
    return {
        "subspace_mass": mass,
        "subspace_logit_gap": alone["logit_gap"],
        "subspace_gap": alone["probability_gap"],
        "subspace_kl": alone["kl"],
        "subspace_kl_estimate": alone["kl_estimate"],
        "subspace_floor": mass * alone["kl"],
        "subspace_flip": alone["flip"],
    }


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Inner product of each row [R, n] -> [R]."""
    if len(a) == 1:
        return torch.dot(a[0], b[0])[None]
    return (a * b).sum(-1)


def _narrow(logits: Tensor) -> Iterator[slice]:
    """A few rows at a time, so that tables stay in a processor's cache."""
    step = max(1, PIECE_ELEMENTS // max(1, logits.shape[1]))
    for start in range(0, len(logits), step):
        yield slice(start, min(start + step, len(logits)))
