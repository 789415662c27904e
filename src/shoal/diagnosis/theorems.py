"""The three theorems of He et al. 2026 (2603.24652): exact forms, leading terms, rigorous bounds.

With x a vector of the dense model, x + D the other model's, a = <D, x> / |x|^2, and b the length of
what of D is orthogonal to x, over |x|:

    T1   1 - cos(x, x + D) = 1 - (1 + (b / (1 + a))^2)^(-1/2)  ~  b^2 / 2            (a > -1)

With p = softmax(z / T), p' = softmax(z' / T), d = (z' - z) / T, and r_i = p_i^2 / |p|^2:

    T2   1 - cos(p, p') = 1 - E_r[e^d] / E_r[e^2d]^(1/2)       ~  Var_r(d) / 2
    T3   KL(p || p')    = log E_p[e^d] - E_p[d]                ~  Var_p(d) / 2

Here p is always the dense model, both in the direction of the divergence and in the weights of the
variances. Lengthening x costs nothing in T1, and shifting all logits nothing in T2 and T3. The
leading terms hold for small D; with R = max d - min d the divergence never exceeds

    R^2 / 8   (Hoeffding),   Var_p(d) (e^R - 1 - R) / R^2   (Bennett),   R

so for large changes it grows with R at most linearly.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.linalg import vecdot

STEEP = 40.0
"""Log-ratio of two probabilities above which the larger is all that counts in their difference."""

BENNETT = 300.0
"""R above which Bennett's bound is not used: e^R times a variance that rounding made zero."""


def inner(x: Tensor, y: Tensor) -> Tensor:
    """Inner products of rows [R, n] -> [R]; of a single row without a table of products."""
    return torch.dot(x[0], y[0])[None] if len(x) == 1 else vecdot(x, y)


@dataclass(frozen=True)
class Turn:
    """How vectors differ from reference vectors, row by row [R].

    Attributes:
        gap: 1 - cosine, exact; NaN where one of the two is zero and the other is not.
        parallel: a, the change along the reference over the reference's length, with its sign.
        orthogonal: b, the length of the change orthogonal to it, over its length.
    """

    gap: Tensor
    parallel: Tensor
    orthogonal: Tensor

    @property
    def estimate(self) -> Tensor:
        """Leading term of the gap, b^2 / 2 (T1)."""
        return self.orthogonal**2 / 2

    @property
    def bound(self) -> Tensor:
        """b^2 / (2 (1 + a)^2), which the gap does not exceed where a > -1; infinite elsewhere."""
        grown = 1 + self.parallel
        return torch.where(grown > 0, self.estimate / grown**2, torch.inf)


def turn(reference: Tensor, other: Tensor) -> Turn:
    """Compare vectors; nothing is lost to rounding where they nearly agree (T1).

    Args:
        reference: Vectors of the dense model [R, d]; float64 for the last digits.
        other: The other model's [R, d].
    """
    return turn_by(reference, other - reference)


def turn_by(reference: Tensor, change: Tensor) -> Turn:
    """Compare vectors with what they become under a change (T1).

    Args:
        reference: Vectors of the dense model [R, d].
        change: D, the other model's less these [R, d].
    """
    square = inner(reference, reference)
    parallel = inner(change, reference) / square
    across = torch.addcmul(change, parallel[:, None], reference, value=-1)
    orthogonal = (inner(across, across) / square).sqrt()
    empty = square == 0
    if empty.any():
        # Zero vectors that stay so; the quotients are not numbers.
        still = empty & (change == 0).all(-1)
        parallel, orthogonal = (v.masked_fill(still, 0.0) for v in (parallel, orthogonal))
    return Turn(angle_gap(1 + parallel, orthogonal), parallel, orthogonal)


def angle_gap(along: Tensor, across: Tensor) -> Tensor:
    """1 - cosine of the angle to the first axis of points in a plane; NaN at the origin [R]."""
    tangent = across / along
    small = -torch.expm1(-0.5 * torch.log1p(tangent * tangent))
    # hypot rather than a quotient: where 1 + a is zero the angle is a right one.
    return torch.where(along > 0, small, 1 - along / torch.hypot(along, across))


def variance(weights: Tensor, values: Tensor) -> Tensor:
    """Variance of values under weights that sum to one [R, n] -> [R]."""
    return inner(weights, _centred(weights, values).square_())


def _centred(weights: Tensor, values: Tensor) -> Tensor:
    """Values less their mean, a new table; what all values share leaves no rounding behind."""
    centred = values - values[:, :1]
    centred -= inner(weights, centred)[:, None]
    return centred


@dataclass(frozen=True)
class Tilt:
    """How distributions p differ from q, which is proportional to p e^d, row by row [R].

    Attributes:
        gap: 1 - cos(p, q), exact.
        gap_estimate: Its leading term, Var_r(d) / 2 (T2).
        kl: KL(p || q) in nats, exact.
        kl_estimate: Its leading term, Var_p(d) / 2 (T3).
        kl_reverse: KL(q || p).
        total_variation: Half the summed absolute difference.
    """

    gap: Tensor
    gap_estimate: Tensor
    kl: Tensor
    kl_estimate: Tensor
    kl_reverse: Tensor
    total_variation: Tensor


def tilt(log_p: Tensor, change: Tensor) -> Tilt:
    """Compare distributions, from the change of logits itself, so that no digits are lost.

    With c = d - E_p[d], M = E_p[e^c] and h = q / p - 1 = (e^c - M) / M, every term of
    KL = log M = log(1 + E_p[e^c - 1 - c]) is at least zero, and T1 gives the angle from the
    change p h of p, whose parallel and orthogonal parts are mean and deviation of h under r.

    Args:
        log_p: Log-probabilities of the dense model [R, V].
        change: d, up to a constant [R, V].
    """
    # Few tables live at a time, and in place, so that they stay in a core's cache.
    p = log_p.exp()
    centred = _centred(p, change)
    steep = centred.amax(-1) > STEEP
    lift = torch.expm1(centred)
    grown = inner(p, lift - centred)
    kl, scale = torch.log1p(grown), 1 + grown
    weighted = p * centred
    reverse = inner(weighted, lift) / scale - kl
    variance_p = inner(weighted, centred)
    del weighted
    h = lift.sub_(grown[:, None]).div_(scale[:, None])
    total_variation = inner(p, h.abs()) / 2
    r = p.square_()
    r /= r.sum(-1, keepdim=True)
    along = inner(r, h)
    h -= along[:, None]
    gap = angle_gap(1 + along, inner(r, h.square_()).sqrt())
    centred -= inner(r, centred)[:, None]
    variance_r = inner(r, centred.square_())
    found = Tilt(gap, variance_r / 2, kl, variance_p / 2, reverse, total_variation)
    if steep.any():
        for name, values in _tilt_steeply(log_p[steep], change[steep]).items():
            getattr(found, name)[steep] = values
    return found


def _tilt_steeply(log_p: Tensor, change: Tensor) -> dict[str, Tensor]:
    """What needs another way where e^c would overflow, or p vanish that q does not."""
    log_q = (log_p + change).log_softmax(-1)
    moved = _difference(log_p, log_q)
    return {
        "gap": turn_by(log_p.exp(), moved).gap,
        "kl": divergence(log_p, log_q),
        "kl_reverse": divergence(log_q, log_p),
        "total_variation": moved.abs().sum(-1) / 2,
    }


def tilted(log_p: Tensor, change: Tensor) -> Tensor:
    """1 - cos(p, p') from log p and d alone: the normaliser cancels (T2, exact form).

    Args:
        log_p: Log-probabilities of the dense model [R, V].
        change: d, up to a constant [R, V].
    """
    log_r = (2 * log_p).log_softmax(-1)
    first, second = (log_r + change).logsumexp(-1), (log_r + 2 * change).logsumexp(-1)
    return -torch.expm1(first - second / 2)


def divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p || q) in nats [R], every term of which is at least zero (T3, exact).

    Since p and q both sum to one, it is the sum of q - p - p g = p (e^g - 1 - g) as well, with
    g = log(q / p), and so small ones keep their digits.
    """
    silent = log_p == -torch.inf
    # What p rules out adds q alone.
    g = (log_q - log_p).masked_fill(silent, 0.0)
    terms = _difference(log_p, log_q) - log_p.exp() * g
    # Where p underflows the product is not a number.
    return terms.masked_fill(~silent & (log_q == -torch.inf), torch.inf).sum(-1)


def _difference(log_p: Tensor, log_q: Tensor) -> Tensor:
    """The difference q - p, to all digits also where the two nearly agree [R, V]."""
    p, g = log_p.exp(), (log_q - log_p).masked_fill(log_q == -torch.inf, -torch.inf)
    return torch.where(g > STEEP, log_q.exp() - p, p * torch.expm1(g))


def divergence_from_change(log_p: Tensor, change: Tensor) -> Tensor:
    """Log E_p[e^d] - E_p[d]: the divergence from log p and d alone (T3, exact form) [R]."""
    return (log_p + change).logsumexp(-1) - (log_p.exp() * change).sum(-1)


def divergence_bounds(variance_p: Tensor, spread: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The Hoeffding, Bennett and linear bounds of the divergence, from Var_p(d) and R [R].

    Bennett's is infinite above R = 300: what p all but rules out may have left no trace in a
    variance in floating point, and then the linear bound is the one that can be trusted.
    """
    small, large = spread < 1e-3, spread > BENNETT
    safe = spread.masked_fill(small | large, 1.0)
    series = 0.5 + spread / 6 + spread**2 / 24 + spread**3 / 120
    factor = torch.where(small, series, (torch.expm1(safe) - safe) / safe**2)
    bennett = (variance_p * factor).masked_fill(large, torch.inf)
    return spread**2 / 8, bennett, spread


def predicted_amplification(z: Tensor, p: Tensor, temperature: float) -> Tensor:
    """(1 - cos p) / (1 - cos z) for small changes of equal variance in every logit [R].

    The leading terms of T2 and T1, averaged over such changes, give mean(z^2) / T^2 (1 - sum r^2):
    softmax amplifies only where logits are larger than T.

    Args:
        z: Logits of the dense model [R, V].
        p: Their softmax at the temperature [R, V].
        temperature: T.
    """
    r = p * p
    r /= r.sum(-1, keepdim=True)
    return inner(z, z) / z.shape[-1] / temperature**2 * (1 - inner(r, r))
