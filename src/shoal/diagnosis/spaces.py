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

from shoal.diagnosis.logit_pairs import LogitPair, Tensors, log_total, subspace
from shoal.diagnosis.theorems import turn
from shoal.models.head import Head, LogitScorer, RowScorer, Scorer

HEAD_ELEMENTS = 2**22
"""Logits that are formed at once, per model: enough rows that the output matrix is read seldom."""

TABLE_ELEMENTS = 2**16
"""Logits that are compared at once: the few tables in use stay in a core's cache."""

ACCELERATOR_TABLE_ELEMENTS = 2**23
"""The same on an accelerator, which wants much to do at a time."""

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
        temperature: Temperature of the distributions, above zero.
        candidates: Different answer tokens, at least two; empty looks at none.
    """

    temperature: float = 1.0
    candidates: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"a temperature must be above 0, got {self.temperature}")
        if len(set(self.candidates)) < len(self.candidates) or len(self.candidates) == 1:
            raise ValueError(f"answer tokens must differ and be at least two: {self.candidates}")


@dataclass(frozen=True)
class Seen:
    """Two models compared at the same positions.

    Attributes:
        quantities: The quantities.
        temperatures: Temperature -> the quantities that depend on it, and `logit_gap` beside them.
        dense_nll: Negative log-likelihood of the token that follows, under the dense model, nats.
        other_nll: The same under the other; both empty if nobody said which token follows.
    """

    quantities: Columns
    temperatures: dict[float, Columns]
    dense_nll: NDArray[np.float64]
    other_nll: NDArray[np.float64]


def compare(dense: Rows, other: Rows, look: Look) -> Columns:
    """Compare two models at the same positions.

    Args:
        dense: The dense model's rows.
        other: The other's, as many, over the same vocabulary.
        look: What is looked at.

    Returns:
        All quantities; those of the hidden space only where both states are known and of one size,
        those of the subspace only where there are candidates.

    Raises:
        ValueError: If the vocabularies or the numbers of positions differ.
    """
    return see(dense, other, look).quantities


def see(
    dense: Rows,
    other: Rows,
    look: Look | None,
    temperatures: Sequence[float] = (),
    targets: Tensor | None = None,
) -> Seen:
    """Everything about two models at the same positions, from logits that are formed once.

    Args:
        dense: The dense model's rows.
        other: The other's, as many, over the same vocabulary.
        look: What is looked at, for the quantities.
        temperatures: Also compare distributions at these.
        targets: The token that follows each position [R].

    Raises:
        ValueError: If the vocabularies or the numbers of positions differ, or a candidate is none
            of the tokens.
    """
    if look is not None and max(look.candidates, default=0) >= dense.vocabulary > 0:
        raise ValueError(f"{max(look.candidates)} is none of the {dense.vocabulary} tokens")
    found: list[Tensors] = []
    swept: dict[float, list[Tensors]] = {t: [] for t in temperatures}
    nll: list[list[Tensor]] = [[], []]
    for start, stop, z, y in _chunks(dense, other):
        if targets is not None:
            follows = targets[start:stop, None].to(z.device)
            for table, logits in zip(nll, (z, y), strict=True):
                table.append(log_total(logits) - logits.gather(1, follows)[:, 0])
        pair = LogitPair.spoken(z, y)
        for t, parts in swept.items():
            parts.append({"logit_gap": pair.turned.gap} | pair.probabilities(t))
        if look is None:
            continue
        quantities = pair.logits() | pair.probabilities(look.temperature)
        if look.candidates:
            tokens = torch.tensor(look.candidates, device=z.device)
            quantities |= subspace(z, y, tokens, look.temperature)
        found.append(quantities | _compare_states(dense, other, start, stop))
    return Seen(
        _ratios(_joined(found)),
        {t: _ratios(_joined(parts)) for t, parts in swept.items()},
        *(_array(parts) for parts in nll),
    )


def _chunks(dense: Rows, other: Rows) -> Iterator[tuple[int, int, Tensor, Tensor]]:
    """First position, position after the last, and the logits of both, float64."""
    words = dense.vocabulary
    if words != other.vocabulary:
        raise ValueError(
            f"the models have vocabularies of {words} and {other.vocabulary} tokens, so their "
            "distributions cannot be compared; both must be over the same tokens"
        )
    if len(dense) != len(other):
        raise ValueError(f"{len(dense)} positions cannot be compared with {len(other)}")
    table = TABLE_ELEMENTS if dense.device.type == "cpu" else ACCELERATOR_TABLE_ELEMENTS
    wide, narrow = (max(1, size // max(1, words)) for size in (HEAD_ELEMENTS, table))
    for first in range(0, len(dense), wide):
        last = min(first + wide, len(dense))
        z, y = dense.logits(first, last), other.logits(first, last).to(dense.device)
        for start in range(first, last, narrow):
            stop = min(start + narrow, last)
            here = slice(start - first, stop - first)
            yield start, stop, z[here].double(), y[here].double()


def _compare_states(dense: Rows, other: Rows, start: int, stop: int) -> Tensors:
    """Quantities of the hidden space."""
    if dense.states is None or other.states is None:
        return {}
    x, y = dense.states[start:stop].double(), other.states[start:stop].double()
    if x.shape != y.shape:
        return {}
    found = turn(x, y.to(x.device))
    return {
        "hidden_gap": found.gap,
        "hidden_parallel": found.parallel,
        "hidden_orthogonal": found.orthogonal,
        "hidden_estimate": found.estimate,
    }


def _joined(parts: Sequence[Tensors]) -> Columns:
    names = parts[0] if parts else {}
    return {name: _array([part[name] for part in parts]) for name in names}


def _array(parts: Sequence[Tensor]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = torch.cat(list(parts)).cpu().numpy() if parts else np.zeros(0)
    return found


def _ratios(columns: Columns) -> Columns:
    """The quantities with those that are quotients of others."""
    pairs = {
        "attenuation": ("logit_orthogonal", "hidden_orthogonal"),
        "amplification": ("probability_gap", "logit_gap"),
    }
    found = {
        name: _ratio(columns[top], columns[bottom])
        for name, (top, bottom) in pairs.items()
        if top in columns and bottom in columns
    }
    return columns | found


def _ratio(top: NDArray[np.float64], bottom: NDArray[np.float64]) -> NDArray[np.float64]:
    """Top over bottom; NaN where nothing changed."""
    return np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom > 0)
