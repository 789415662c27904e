"""Profiles of hidden states over depth, and how far one is from another (TAPIOCA, 2605.14738).

    norm        n_l = mean over positions of |h_l|
    distance    d_l = mean over pairs of positions of one sequence of |h_l^i - h_l^j|
    cosine      the same of 1 - cos
    last_...    of the last position alone, with pairs across sequences
    gap         (1/N) sum_{l=1..N} |log d_l - log d'_l|

Depths go by the blocks of the dense model: after a removed block the state is what it was before.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shoal.core.errors import UsageError
from shoal.core.means import known_mean
from shoal.core.records import Mean
from shoal.geometry.distances import pair_cosines, pair_distances
from shoal.geometry.records import Gaps, Profile
from shoal.geometry.stack import Batch, Stack, Texts, states

Values = NDArray[np.float64]

_CELLS = 1 << 22
"""Pairs of positions that are worked on at once."""


@dataclass(frozen=True, eq=False)
class ProfileTable:
    """The profiles of S sequences, in their order, at N + 1 depths.

    A sequence whose states are not finite counts as infinite: a model that is driven out of its
    number range must not be judged by the sequences that survive it.

    Attributes:
        norm: Mean length of the counted states [S, N + 1].
        distance: Mean distance between two of them [S, N + 1]; NaN for a single one.
        cosine: The same of 1 - cosine.
        last_norm: Length of the last counted state [S, N + 1].
        last: That state [S, N + 1, d], float32.
    """

    norm: Values
    distance: Values
    cosine: Values
    last_norm: Values
    last: NDArray[np.float32]

    @classmethod
    def joined(cls, tables: Sequence[Self]) -> Self:
        """The sequences of several tables, one after another."""
        return cls(
            *(np.concatenate([getattr(t, f.name) for t in tables]) for f in fields(cls)),
        )

    @property
    def sequences(self) -> int:
        """Number of sequences, S."""
        return len(self.norm)

    @cached_property
    def last_distance(self) -> Values:
        """Distances between the last states of each two sequences [N + 1, S, S]."""
        return _across(self.last, pair_distances, centre=True)

    @cached_property
    def last_cosine(self) -> Values:
        """1 - cosine between them [N + 1, S, S]."""
        return _across(self.last, pair_cosines, centre=False)

    @cached_property
    def means(self) -> dict[str, Values]:
        """Each profile by its name in `Gaps` [N + 1]; those of last pairs need two sequences."""
        found = {
            "norm": self.norm.mean(0),
            "distance": np.nanmean(self.distance, 0),
            "cosine": np.nanmean(self.cosine, 0),
            "last_norm": self.last_norm.mean(0),
        }
        if self.sequences > 1:
            pairs = self.sequences * (self.sequences - 1)
            found["last_distance"] = self.last_distance.sum((1, 2)) / pairs
            found["last_cosine"] = self.last_cosine.sum((1, 2)) / pairs
        return found

    def to_record(self, seed: int = 0) -> Profile:
        """The profiles with their intervals over sequences.

        Args:
            seed: Seed of the bootstrap.
        """

        def over_sequences(table: Values) -> tuple[Mean, ...]:
            return tuple(known_mean(column, seed) for column in table.T)

        return Profile(
            norm=over_sequences(self.norm),
            distance=over_sequences(self.distance),
            cosine=over_sequences(self.cosine),
            last_norm=over_sequences(self.last_norm),
            last_distance=tuple(self.means.get("last_distance", np.empty(0)).tolist()),
            last_cosine=tuple(self.means.get("last_cosine", np.empty(0)).tolist()),
        )

    def gaps(self, reference: "ProfileTable") -> Gaps:
        """How far each profile is from that of a reference; None where either has no pairs.

        Args:
            reference: The profile that the model is adapted to.

        Raises:
            UsageError: If it is of another number of depths.
        """
        mine, other = self.means, reference.means
        found = {
            name: float(alignment_gap(mine[name], other[name]))
            if name in mine and name in other
            else None
            for name in Gaps.model_fields
        }
        return Gaps.model_validate(found)


def alignment_gap(ood: Values, id: Values) -> Values:
    """Mean over depths 1 to N of |log of one profile - log of the other|.

    Two zeros are no distance apart; zero and something else are infinitely far.

    Args:
        ood: A profile [..., N + 1].
        id: The profile that it is compared with, [..., N + 1].

    Returns:
        The gap of each pair of profiles [...].

    Raises:
        UsageError: If they are of different numbers of depths, or of depth 0 alone.
    """
    ood, id = np.asarray(ood)[..., 1:], np.asarray(id)[..., 1:]
    if ood.shape[-1] != id.shape[-1] or not ood.shape[-1]:
        raise UsageError(
            f"profiles of {ood.shape[-1] + 1} and {id.shape[-1] + 1} depths cannot be compared; "
            "both must be of one model, of at least one block."
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.abs(np.log(ood) - np.log(id))
    found: Values = np.where((ood == 0) & (id == 0), 0.0, apart).mean(-1)
    return found


def profile(stack: Stack, texts: Texts) -> ProfileTable:
    """Run texts and profile their states, with whatever interventions are in place.

    Args:
        stack: The model.
        texts: Its inputs.

    Returns:
        One row per sequence, in the order of the texts.

    Raises:
        UsageError: If there are no texts, or no two positions of any sequence count.
        UnsupportedModelError: If the model has no single state per depth and position.
    """
    if not texts.batches:
        raise UsageError(f"the texts {texts.name} are empty, so there are no states to profile.")
    table = ProfileTable.joined([_of_batch(stack, batch) for batch in texts.batches])
    if np.isnan(table.distance).all():
        raise UsageError(
            f"each of the texts {texts.name} has a single position that counts, so there are no "
            "distances within a sequence. Use longer texts."
        )
    return table


def _of_batch(stack: Stack, batch: Batch) -> ProfileTable:
    rows = torch.arange(len(batch.last))
    columns: list[Values] = []
    lasts: list[NDArray[np.float32]] = []
    for hidden in states(stack, batch):
        # Not every kind of accelerator has float64.
        where = hidden.device if hidden.is_cuda else torch.device("cpu")
        local, counted = hidden.to(where), batch.positions.to(where)
        size = max(1, _CELLS // counted.shape[1] ** 2)
        parts = zip(local.split(size), counted.split(size), strict=True)
        last = local[rows.to(where), batch.last.to(where)]
        length = _no_nan(last.double().square().sum(-1).sqrt())
        found = torch.cat([_within(h.double(), c) for h, c in parts])
        columns.append(torch.cat([found, length[:, None]], 1).cpu().numpy())
        lasts.append(last.cpu().numpy())
    norm, distance, cosine, last_norm = np.moveaxis(np.stack(columns, 1), 2, 0)
    return ProfileTable(norm, distance, cosine, last_norm, np.stack(lasts, 1))


def _within(hidden: Tensor, counted: Tensor) -> Tensor:
    """Norm, distance and cosine of each sequence [B, 3] from float64 states [B, T, d]."""
    hidden = hidden.where(counted[..., None], 0.0)
    finite = hidden.isfinite().all(-1).all(-1)
    # Its numbers are replaced below.
    hidden = hidden.where(finite[:, None, None], 0.0)
    count = counted.sum(1)
    middle = hidden.sum(1, keepdim=True) / count[:, None, None]
    centred = (hidden - middle).where(counted[..., None], 0.0)
    pairs = counted[:, :, None] & counted[:, None, :]

    def over_pairs(distances: Tensor) -> Tensor:
        total = distances.where(pairs, 0.0).sum((1, 2)) / (count * (count - 1))
        return total.where(count > 1, torch.nan)

    norm = hidden.square().sum(-1).sqrt().sum(1) / count
    distance, cosine = over_pairs(pair_distances(centred)), over_pairs(pair_cosines(hidden))
    found = torch.stack([norm, distance, cosine], 1)
    return found.where(finite[:, None] | found.isnan(), torch.inf)


def _across(
    last: NDArray[np.float32], distances: Callable[[Tensor], Tensor], *, centre: bool
) -> Values:
    """Distances between the last states [S, N + 1, d] of each two sequences [N + 1, S, S]."""
    found = []
    for column in np.moveaxis(last, 1, 0):
        hidden = torch.from_numpy(column).double()
        finite = hidden.isfinite().all(-1)
        hidden = hidden.where(finite[:, None], 0.0)
        if centre:
            hidden = hidden - hidden.mean(0)
        apart = distances(hidden[None])[0]
        apart = apart.where(finite & finite[:, None], torch.inf)
        found.append(apart.fill_diagonal_(0.0).numpy())
    return np.stack(found)


def _no_nan(values: Tensor) -> Tensor:
    return values.nan_to_num(nan=torch.inf, posinf=torch.inf)
