"""Logits tile by tile, each reduced while it is still in cache.

A tile is some rows times some of the vocabulary. With m a running maximum of the logits z of a row,

    S = sum_v exp(z_v - m)          log-sum-exp = m + log S
    D = sum_v exp(z_v - m) (z_v - y_v)

are joined over the tiles of a row by rescaling with exp(m_old - m_new), as online softmax does
(Milakov and Gimelshein 2018, 1805.02867). With z the reference's logits and y another model's,

    KL = D / S - (lse_z - lse_y)
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from shoal.models.head import Head

CPU_TILE = (1024, 4096)
"""Rows and vocabulary entries of a tile on a CPU: a tile of float32 is 16 MB."""

ACCELERATOR_TILE_BYTES = 2**28
"""Size of a float32 tile elsewhere, where the whole vocabulary is one tile."""


def tile_of(rows: int, vocabulary: int, device: torch.device) -> tuple[int, int]:
    """Rows and vocabulary entries of a tile."""
    if device.type == "cpu":
        return min(rows, CPU_TILE[0]), min(vocabulary, CPU_TILE[1])
    return max(1, min(rows, ACCELERATOR_TILE_BYTES // (4 * vocabulary))), vocabulary


class Tiles:
    """The logits of some rows in float32 tiles that share one buffer.

    Args:
        head: The head.
        states: Normed states of the rows [R, d].
    """

    def __init__(self, head: "Head", states: Tensor) -> None:
        self.head, self.states = head, states
        rows, words = tile_of(states.shape[0], head.weight.shape[0], states.device)
        self.row_step, self.word_step = rows, words
        self._product = torch.empty(rows, words, dtype=states.dtype, device=states.device)
        exact = self._product.dtype == torch.float32
        self._wide = self._product if exact else self._product.float()

    def rows(self) -> range:
        """First row of each tile."""
        return range(0, self.states.shape[0], self.row_step)

    def words(self) -> range:
        """First vocabulary entry of each tile."""
        return range(0, self.head.weight.shape[0], self.word_step)

    def at(self, row: int, word: int) -> Tensor:
        """Logits of the tile that starts there, float32; overwritten by the next call."""
        head, block = self.head, self.states[row : row + self.row_step]
        weight = head.weight[word : word + self.word_step]
        z = self._product[: len(block), : len(weight)]
        if head.bias is None:
            torch.mm(block, weight.T, out=z)
        else:
            torch.addmm(head.bias[word : word + self.word_step], block, weight.T, out=z)
        head.finish(z)
        if self._wide is self._product:
            return z
        return self._wide[: len(block), : len(weight)].copy_(z)

    def across(self, row: int) -> Iterator[tuple[int, Tensor]]:
        """The tiles of some rows one after another, with their first vocabulary entry."""
        for word in self.words():
            yield word, self.at(row, word)


class Sums:
    """Running maximum m and S of some rows, in float64 so that many tiles cost no precision."""

    def __init__(self, rows: int, device: torch.device) -> None:
        self.top = torch.full((rows,), -torch.inf, dtype=torch.float64, device=device)
        self.sum = torch.zeros(rows, dtype=torch.float64, device=device)

    def add_(self, z: Tensor) -> Tensor:
        """Take in a tile and turn it into exp(z - m), in place.

        Args:
            z: Logits [rows, words], float32.

        Returns:
            What sums of earlier tiles are to be multiplied by [rows], float64.
        """
        top = torch.maximum(self.top, z.amax(1))
        # A row of minus infinity would otherwise turn into NaN.
        shift = top.masked_fill(top == -torch.inf, 0.0)
        factor = (self.top - shift).exp_()
        z.sub_(shift[:, None].float()).exp_()
        self.sum = self.sum * factor + z.sum(1)
        self.top = top
        return factor


def divergence_of_rows(one: Tiles, reference: Tiles, row: int) -> Tensor:
    """KL(reference || one) of the rows of a tile, in nats.

    Args:
        one: Logits of a model.
        reference: Logits of the reference for the same rows, in tiles of the same size.
        row: First row.

    Returns:
        One value per row, float64; infinite where the reference allows what the model rules out.
    """
    count, device = len(one.states[row : row + one.row_step]), one.states.device
    own, base = Sums(count, device), Sums(count, device)
    excess = torch.zeros(count, dtype=torch.float64, device=device)
    beyond = torch.zeros_like(excess)
    gap = torch.empty(count, one.word_step, device=device)
    for word, z in reference.across(row):
        y = one.at(row, word)
        d = torch.sub(z, y, out=gap[:, : z.shape[1]])
        # One sum is cheaper than a search for infinities, which are rare.
        if not math.isfinite(d.sum()):
            d.masked_fill_(z == -torch.inf, 0.0)
            # Kept apart: 0 * inf is NaN where the reference's probability underflows.
            ruled_out = d == torch.inf
            beyond.masked_fill_(ruled_out.any(1), torch.inf)
            d.masked_fill_(ruled_out, 0.0)
            # Nor may 0 * -inf be, where the difference of finite logits overflows.
            d.clamp_(min=torch.finfo(d.dtype).min)
        factor = base.add_(z)
        own.add_(y)
        excess = excess * factor + d.mul_(z).sum(1)
    # The log-sum-exps nearly cancel, so they are not formed.
    lift = (base.top - own.top) + (base.sum / own.sum).log_()
    return excess / base.sum - lift + beyond
