"""Logits of two models at the same positions, compared in logit and probability space.

All tables are float64 [R, V]; what comes out is one number per position and quantity.
"""

from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from shoal.diagnosis.theorems import (
    Turn,
    divergence_bounds,
    inner,
    predicted_amplification,
    tilt,
    turn,
    turn_by,
)

Tensors = dict[str, Tensor]
"""Quantity -> its value at some positions [R], where they were computed."""


class LogitPair:
    """What several spaces need of the same logits.

    Args:
        z: The dense model's.
        y: The other's.
    """

    def __init__(self, z: Tensor, y: Tensor) -> None:
        self.z, self.change = z, y - z
        self.top, first = z.max(-1, keepdim=True)
        self._flip = (first[:, 0] != y.max(-1).indices).double()
        self._spread = self.change.amax(-1) - self.change.amin(-1)
        self._found: dict[float, Tensors] = {}

    @classmethod
    def spoken(cls, z: Tensor, y: Tensor) -> Self:
        """Without the tokens that neither model ever says: logits of padding may be -inf."""
        if torch.isfinite(z.sum() + y.sum()):
            return cls(z, y)
        silent = ((z == -torch.inf) & (y == -torch.inf)).all(0)
        return cls(z[:, ~silent], y[:, ~silent])

    @cached_property
    def turned(self) -> Turn:
        """How the logits turn."""
        return turn_by(self.z, self.change)

    def logits(self) -> Tensors:
        """Quantities of the logit space."""
        centred = self.change - self.change.mean(-1, keepdim=True)
        plain = turn_by(self.z - self.z.mean(-1, keepdim=True), centred)
        return {
            "logit_gap": self.turned.gap,
            "logit_parallel": self.turned.parallel,
            "logit_orthogonal": self.turned.orthogonal,
            "logit_estimate": self.turned.estimate,
            "logit_gap_centred": plain.gap,
            "logit_change": _rms(centred),
            "logit_rms": _rms(self.z),
        }

    def probabilities(self, temperature: float) -> Tensors:
        """Quantities of the probability space."""
        if temperature not in self._found:
            self._found[temperature] = self._probabilities(temperature)
        return self._found[temperature]

    def _probabilities(self, temperature: float) -> Tensors:
        log_p = (self.z - self.top).div_(temperature)
        log_p -= log_p.exp().sum(-1, keepdim=True).log_()
        p = log_p.exp()
        found = tilt(log_p, self.change / temperature)
        bounds = divergence_bounds(2 * found.kl_estimate, self._spread / temperature)
        return {
            "probability_gap": found.gap,
            "probability_estimate": found.gap_estimate,
            "kl": found.kl,
            "kl_estimate": found.kl_estimate,
            "kl_reverse": found.kl_reverse,
            "kl_bound": torch.stack(bounds).amin(0),
            "total_variation": found.total_variation,
            "flip": self._flip,
            "entropy": -inner(p, log_p),
            "amplification_predicted": predicted_amplification(self.z, p, temperature),
        }


def subspace(z: Tensor, y: Tensor, tokens: Tensor, temperature: float) -> Tensors:
    """Quantities of the subspace of some tokens.

    Args:
        z: The dense model's logits of all tokens.
        y: The other's.
        tokens: The answer tokens [C].
        temperature: Temperature of the distributions.
    """
    inside, moved = z[:, tokens], y[:, tokens]
    found = tilt((inside / temperature).log_softmax(-1), (moved - inside) / temperature)
    mass = (log_total(inside / temperature) - log_total(z / temperature)).exp()
    return {
        "subspace_mass": mass,
        "subspace_logit_gap": turn(inside, moved).gap,
        "subspace_gap": found.gap,
        "subspace_kl": found.kl,
        "subspace_kl_estimate": found.kl_estimate,
        "subspace_floor": mass * found.kl,
        "subspace_flip": (inside.argmax(-1) != moved.argmax(-1)).double(),
    }


def log_total(logits: Tensor) -> Tensor:
    """Log of the summed exponentials [R]; several times as fast as logsumexp."""
    top = logits.amax(-1, keepdim=True)
    return (logits - top).exp_().sum(-1).log_().add_(top[:, 0])


def _rms(values: Tensor) -> Tensor:
    return (inner(values, values) / values.shape[-1]).sqrt()
