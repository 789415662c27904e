"""From the last block's output to log-probabilities of chosen tokens, without full logits.

A head pass over a large vocabulary costs as much as many blocks, most of it for writing and
re-reading logits. Here the product runs tile by tile over rows and vocabulary, and each tile is
reduced to its log-sum-exp while it is still in cache:

    log p(t) = z_t - log sum_v exp z_v,   log-sum-exp joined over vocabulary tiles
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

CPU_TILE = (1024, 4096)
"""Rows and vocabulary entries of a tile on a CPU: a tile of float32 is 16 MB."""

ACCELERATOR_TILE_BYTES = 2**28
"""Size of a float32 tile elsewhere, where the whole vocabulary is one tile."""


class Scorer(Protocol):
    """Gives log-probabilities of chosen tokens for the rows of one batch."""

    def token_logprobs(self, pick: Tensor, targets: Tensor) -> Tensor:
        """Log-probability of each target under the row that predicts it, float32 [S].

        Args:
            pick: For each scored token, its row [S].
            targets: For each scored token, its id [S].
        """
        ...


@dataclass(frozen=True)
class Head:
    """What follows the last block: norms, the output matrix, and a simple function of the logits.

    Attributes:
        chain: Modules applied to the hidden state, position by position.
        weight: Output matrix [V, d].
        bias: Output bias [V], if any.
        scale: Factor on the logits.
        softcap: Bound c of z -> c tanh(z / c) on the logits, if any.
    """

    chain: tuple[nn.Module, ...]
    weight: Tensor
    bias: Tensor | None = None
    scale: float = 1.0
    softcap: float | None = None

    @torch.no_grad()
    def score(self, hidden: Tensor, rows: Tensor) -> "RowScorer":
        """Prepare the rows of a batch for scoring.

        Args:
            hidden: Output of the last block [B, T, d].
            rows: Flat positions whose logits are needed [R].
        """
        states = hidden.reshape(-1, hidden.shape[-1])[rows][None]
        for module in self.chain:
            states = module(states)
        return RowScorer(self, states[0])

    def finish(self, logits: Tensor) -> Tensor:
        """Scale and cap logits in place."""
        if self.scale != 1.0:
            logits.mul_(self.scale)
        if self.softcap is not None:
            logits.div_(self.softcap).tanh_().mul_(self.softcap)
        return logits

    def logits(self, states: Tensor) -> Tensor:
        """Full logits of normed states [R, d], float32 [R, V]."""
        return self.finish(nn.functional.linear(states, self.weight, self.bias)).float()

    def tile(self, rows: int) -> tuple[int, int]:
        """Rows and vocabulary entries of a tile for a number of rows."""
        vocabulary = self.weight.shape[0]
        if self.weight.device.type == "cpu":
            return min(rows, CPU_TILE[0]), min(vocabulary, CPU_TILE[1])
        return max(1, min(rows, ACCELERATOR_TILE_BYTES // (4 * vocabulary))), vocabulary


@dataclass(frozen=True)
class RowScorer:
    """Normed states of the rows of one batch, and the head that scores them."""

    head: Head
    states: Tensor

    @torch.no_grad()
    def token_logprobs(self, pick: Tensor, targets: Tensor) -> Tensor:
        """Log-probability of each target under the row that predicts it, float32 [S].

        Args:
            pick: For each scored token, its row [S].
            targets: For each scored token, its id [S].
        """
        states, head = self.states, self.head
        num_rows, vocabulary = states.shape[0], head.weight.shape[0]
        row_step, word_step = head.tile(num_rows)
        product = torch.empty(row_step, word_step, dtype=states.dtype, device=states.device)
        wide = product if product.dtype == torch.float32 else product.float()
        normaliser = torch.empty(num_rows, device=states.device)
        chosen = torch.empty(len(targets), device=states.device)
        for row in range(0, num_rows, row_step):
            block = states[row : row + row_step]
            wanted = ((pick >= row) & (pick < row + row_step)).nonzero()[:, 0]
            local_row, target = pick[wanted] - row, targets[wanted]
            parts = []
            for word in range(0, vocabulary, word_step):
                weight = head.weight[word : word + word_step]
                z = product[: len(block), : len(weight)]
                if head.bias is None:
                    torch.mm(block, weight.T, out=z)
                else:
                    torch.addmm(head.bias[word : word + word_step], block, weight.T, out=z)
                head.finish(z)
                if wide is not product:
                    z = wide[: len(block), : len(weight)].copy_(z)
                here = ((target >= word) & (target < word + word_step)).nonzero()[:, 0]
                chosen[wanted[here]] = z[local_row[here], target[here] - word]
                parts.append(_logsumexp_(z))
            normaliser[row : row + row_step] = torch.stack(parts).logsumexp(0)
        return chosen - normaliser[pick]


@dataclass(frozen=True)
class LogitScorer:
    """Full logits of the rows of one batch: the plain way, for the model's own forward."""

    logits: Tensor

    def token_logprobs(self, pick: Tensor, targets: Tensor) -> Tensor:
        """Log-probability of each target under the row that predicts it, float32 [S]."""
        table = self.logits.float().log_softmax(-1)
        return table[pick, targets]


def _logsumexp_(z: Tensor) -> Tensor:
    """Log-sum-exp over the last axis, overwriting the input."""
    top = z.amax(1, keepdim=True)
    # A row of minus infinity would otherwise turn into NaN.
    top.masked_fill_(top == -torch.inf, 0.0)
    return z.sub_(top).exp_().sum(1).log_().add_(top[:, 0])
