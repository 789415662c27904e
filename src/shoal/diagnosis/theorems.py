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
    change = other - reference
    length = (reference * reference).sum(-1)
    parallel = (change * reference).sum(-1) / length
    across = change - parallel[:, None] * reference
    orthogonal = ((across * across).sum(-1) / length).sqrt()
    grown = 1 + parallel
    # hypot rather than a quotient: where a = -1 the angle is a right one.
    shortfall = 1 - grown / torch.hypot(grown, orthogonal)
    tangent = orthogonal / grown
    small = -torch.expm1(-0.5 * torch.log1p(tangent * tangent))
    gap = torch.where(grown > 0, small, shortfall)
    return Turn(_unless_equal(gap, change), _unless_equal(parallel, change), orthogonal)


def _unless_equal(value: Tensor, change: Tensor) -> Tensor:
    """Zero where nothing changed, also of zero vectors."""
    return value.masked_fill((change == 0).all(-1), 0.0)


def variance(weights: Tensor, values: Tensor) -> Tensor:
    """Variance of values under weights that sum to one [R, n] -> [R]."""
    centred = values - (weights * values).sum(-1, keepdim=True)
    return (weights * centred * centred).sum(-1)


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

    Since q sums to one, sum p (e^g - 1) = 0 for g = log q - log p, so that the sum of
    p (e^g - 1 - g) is the divergence, and small ones keep their digits.
    """
    g = (log_q - log_p).masked_fill(log_p == -torch.inf, 0.0)
    terms = log_p.exp() * (torch.expm1(g) - g)
    # What p all but rules out counts for q by its probability alone.
    return torch.where(g > 40.0, log_q.exp() - log_p.exp() * (1 + g), terms).sum(-1)


def divergence_from_change(log_p: Tensor, change: Tensor) -> Tensor:
    """Log E_p[e^d] - E_p[d]: the divergence from log p and d alone (T3, exact form) [R]."""
    return (log_p + change).logsumexp(-1) - (log_p.exp() * change).sum(-1)


def divergence_bounds(variance_p: Tensor, spread: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The Hoeffding, Bennett and linear bounds of the divergence, from Var_p(d) and R [R]."""
    small = spread < 1e-3
    safe = spread.masked_fill(small, 1.0)
    factor = torch.where(small, 0.5 + spread / 6, (torch.expm1(safe) - safe) / safe**2)
    return spread**2 / 8, variance_p * factor, spread


def predicted_amplification(z: Tensor, p: Tensor, temperature: float) -> Tensor:
    """(1 - cos p) / (1 - cos z) for an isotropic small change of logits (methods B.2, item 6) [R].

    mean(z^2) / T^2 (1 - sum r^2): softmax amplifies only where logits are larger than T.

    Args:
        z: Logits of the dense model [R, V].
        p: Their softmax at the temperature [R, V].
        temperature: T.
    """
    square = p * p
    r = square / square.sum(-1, keepdim=True)
    return (z * z).mean(-1) / temperature**2 * (1 - (r * r).sum(-1))
