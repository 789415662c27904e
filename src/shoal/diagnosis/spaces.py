"""Two models at the same positions, compared in hidden, logit and probability space.

A table over the whole vocabulary for all positions would be huge, so logits are formed for a few
positions at a time and reduced before the next; memory does not grow with their number. Everything
is reduced in float64, since the differences may be small.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shoal.diagnosis.theorems import (
    divergence,
    divergence_bounds,
    predicted_amplification,
    turn,
    variance,
)
from shoal.models.head import Head, LogitScorer, RowScorer, Scorer

HEAD_ELEMENTS = 2**22
"""Logits that are formed at once, per model: enough rows that the output matrix is read seldom."""

TABLE_ELEMENTS = 2**18
"""Logits that are compared at once: their tables stay in a processor's cache."""

Columns = dict[str, NDArray[np.float64]]
"""Quantity -> its value at each position [R]; the names are those of `quantities`."""


@dataclass(frozen=True)
class Rows:
    """What one model says at some positions.

    Attributes:
        states: What the head reads [R, d]; None where it could not be seen.
        head: Turns states into logits; None where `full` holds them.
        full: Logits [R, V].
    """

    states: Tensor | None
    head: Head | None = None
    full: Tensor | None = None

    @classmethod
    def of(cls, scorer: Scorer) -> "Rows":
        """What a runner found.

        Raises:
            TypeError: If the scorer is of an unknown kind.
        """
        if isinstance(scorer, RowScorer):
            return cls(scorer.states, scorer.head)
        if isinstance(scorer, LogitScorer):
            return cls(scorer.states, full=scorer.logits)
        raise TypeError(f"a {type(scorer).__name__} shows no logits")

    def __len__(self) -> int:
        """Number of positions."""
        found = self.full if self.states is None else self.states
        return 0 if found is None else len(found)

    @property
    def device(self) -> torch.device:
        """Where they lie."""
        found = self.full if self.states is None else self.states
        return torch.device("cpu") if found is None else found.device

    @property
    def vocabulary(self) -> int:
        """Number of logits per position."""
        if self.full is not None:
            return self.full.shape[1]
        return 0 if self.head is None else self.head.weight.shape[0]

    def at(self, places: Tensor) -> "Rows":
        """Some of the positions."""
        return Rows(
            None if self.states is None else self.states[places],
            self.head,
            None if self.full is None else self.full[places],
        )

    @torch.no_grad()
    def logits(self, start: int, stop: int) -> Tensor:
        """Logits of a range of positions, float32 [stop - start, V]."""
        if self.full is not None:
            return self.full[start:stop].float()
        if self.head is None or self.states is None:
            raise ValueError("neither logits nor a head to form them with")
        return self.head.logits(self.states[start:stop])


@dataclass(frozen=True)
class Look:
    """What is looked at.

    Attributes:
        temperature: Temperature of the distributions.
        candidates: Answer tokens, at least two; empty looks at none.
    """

    temperature: float = 1.0
    candidates: tuple[int, ...] = ()


def compare(dense: Rows, other: Rows, look: Look) -> Columns:
    """Compare two models at the same positions.

    Args:
        dense: The dense model's rows.
        other: The other's, as many, over the same vocabulary.
        look: What is looked at.

    Returns:
        All quantities; those of the hidden space only where both states are known and of one size,
        those of the subspace only where there are candidates.
    """
    parts = [
        _compare(z, y, look) | _compare_states(dense, other, start, stop)
        for start, stop, z, y in _chunks(dense, other)
    ]
    found = _joined(parts)
    if "hidden_orthogonal" in found:
        found["attenuation"] = _ratio(found["logit_orthogonal"], found["hidden_orthogonal"])
    found["amplification"] = _ratio(found["probability_gap"], found["logit_gap"])
    return found


def sweep(dense: Rows, other: Rows, temperatures: Sequence[float]) -> dict[float, Columns]:
    """What depends on the temperature, at several of them.

    Returns:
        Temperature -> the quantities of the probability space, and `logit_gap` beside them.
    """
    parts: dict[float, list[Columns]] = {t: [] for t in temperatures}
    for _, _, z, y in _chunks(dense, other):
        z, y = _spoken(z, y)
        gap = {"logit_gap": turn(z, y).gap.cpu().numpy()}
        for t in temperatures:
            parts[t].append(_probabilities(z, y, t) | gap)
    found = {t: _joined(columns) for t, columns in parts.items()}
    for columns in found.values():
        columns["amplification"] = _ratio(columns["probability_gap"], columns["logit_gap"])
    return found


def _chunks(dense: Rows, other: Rows) -> Iterator[tuple[int, int, Tensor, Tensor]]:
    """First position, position after the last, and the logits of both, float64."""
    words = dense.vocabulary
    if len(dense) != len(other) or words != other.vocabulary:
        raise ValueError(
            f"{len(dense)} rows of {words} logits and {len(other)} rows of {other.vocabulary}"
        )
    wide, narrow = (max(1, size // words) for size in (HEAD_ELEMENTS, TABLE_ELEMENTS))
    for first in range(0, len(dense), wide):
        last = min(first + wide, len(dense))
        z, y = dense.logits(first, last), other.logits(first, last).to(dense.device)
        for start in range(first, last, narrow):
            stop = min(start + narrow, last)
            here = slice(start - first, stop - first)
            yield start, stop, z[here].double(), y[here].double()


def _spoken(z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The logits without tokens that neither model ever says: those of padding may be -inf."""
    if torch.isfinite(z.sum() + y.sum()):
        return z, y
    silent = ((z == -torch.inf) & (y == -torch.inf)).all(0)
    return z[:, ~silent], y[:, ~silent]


def _compare(z: Tensor, y: Tensor, look: Look) -> Columns:
    inside = _candidates(z, y, look) if look.candidates else {}
    z, y = _spoken(z, y)
    logits = turn(z, y)
    change = y - z
    centred = change - change.mean(-1, keepdim=True)
    plain = turn(z - z.mean(-1, keepdim=True), y - y.mean(-1, keepdim=True))
    found = {
        "logit_gap": logits.gap,
        "logit_parallel": logits.parallel,
        "logit_orthogonal": logits.orthogonal,
        "logit_estimate": logits.estimate,
        "logit_gap_centred": plain.gap,
        "logit_change": centred.pow(2).mean(-1).sqrt(),
        "logit_rms": z.pow(2).mean(-1).sqrt(),
    }
    columns = {name: value.cpu().numpy() for name, value in found.items()}
    return columns | _probabilities(z, y, look.temperature) | inside


def _probabilities(z: Tensor, y: Tensor, temperature: float) -> Columns:
    log_p, log_q = (z / temperature).log_softmax(-1), (y / temperature).log_softmax(-1)
    p, q = log_p.exp(), log_q.exp()
    d = (y - z) / temperature
    square = p * p
    r = square / square.sum(-1, keepdim=True)
    variance_p = variance(p, d)
    bounds = divergence_bounds(variance_p, d.amax(-1) - d.amin(-1))
    found = {
        "probability_gap": turn(p, q).gap,
        "probability_estimate": variance(r, d) / 2,
        "kl": divergence(log_p, log_q),
        "kl_estimate": variance_p / 2,
        "kl_reverse": divergence(log_q, log_p),
        "kl_bound": torch.stack(bounds).amin(0),
        "total_variation": (p - q).abs().sum(-1) / 2,
        "flip": (z.argmax(-1) != y.argmax(-1)).double(),
        "entropy": -(p * log_p).sum(-1),
        "amplification_predicted": predicted_amplification(z, p, temperature),
    }
    return {name: value.cpu().numpy() for name, value in found.items()}


def _candidates(z: Tensor, y: Tensor, look: Look) -> Columns:
    tokens = torch.tensor(look.candidates, device=z.device)
    t = look.temperature
    inside, moved = z[:, tokens] / t, y[:, tokens] / t
    log_p, log_q = inside.log_softmax(-1), moved.log_softmax(-1)
    mass = (inside.logsumexp(-1) - (z / t).logsumexp(-1)).exp()
    kl = divergence(log_p, log_q)
    found = {
        "subspace_mass": mass,
        "subspace_logit_gap": turn(inside, moved).gap,
        "subspace_gap": turn(log_p.exp(), log_q.exp()).gap,
        "subspace_kl": kl,
        "subspace_kl_estimate": variance(log_p.exp(), moved - inside) / 2,
        "subspace_floor": mass * kl,
        "subspace_flip": (inside.argmax(-1) != moved.argmax(-1)).double(),
    }
    return {name: value.cpu().numpy() for name, value in found.items()}


def _compare_states(dense: Rows, other: Rows, start: int, stop: int) -> Columns:
    if dense.states is None or other.states is None:
        return {}
    x, y = dense.states[start:stop].double(), other.states[start:stop].double()
    if x.shape != y.shape:
        return {}
    found = turn(x, y.to(x.device))
    columns = {
        "hidden_gap": found.gap,
        "hidden_parallel": found.parallel,
        "hidden_orthogonal": found.orthogonal,
        "hidden_estimate": found.estimate,
    }
    return {name: value.cpu().numpy() for name, value in columns.items()}


def _joined(parts: Sequence[Columns]) -> Columns:
    names = parts[0] if parts else {}
    return {name: np.concatenate([part[name] for part in parts]) for name in names}


def _ratio(top: NDArray[np.float64], bottom: NDArray[np.float64]) -> NDArray[np.float64]:
    """Top over bottom; NaN where nothing changed."""
    return np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom > 0)
