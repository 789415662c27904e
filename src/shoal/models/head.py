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

from shoal.models.tiles import ACCELERATOR_TILE_BYTES, Tiles, divergence_of_rows


class Scorer(Protocol):
    """Gives log-probabilities of chosen tokens for the rows of one batch."""

    def token_logprobs(self, pick: Tensor, targets: Tensor) -> Tensor:
        """Log-probability of each target under the row that predicts it, float32 [S].

        Args:
            pick: For each scored token, its row [S].
            targets: For each scored token, its id [S].
        """
        ...

    def divergence(self, reference: "Scorer") -> Tensor:
        """KL(reference || this) of the next-token distribution of each row, in nats, float32 [R].

        Args:
            reference: A scorer of the same kind for the same rows, under another model.
        """
        ...

    @property
    def keepable(self) -> bool:
        """Whether this is small enough to keep: hidden states are, logits are not."""
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
        tiles = Tiles(self.head, self.states)
        num_rows, step = self.states.shape[0], tiles.row_step
        normaliser = torch.empty(num_rows, device=self.states.device)
        chosen = torch.empty(len(targets), device=self.states.device)
        for row in tiles.rows():
            wanted = ((pick >= row) & (pick < row + step)).nonzero()[:, 0]
            local_row, target = pick[wanted] - row, targets[wanted]
            parts = []
            for word, z in tiles.across(row):
                here = ((target >= word) & (target < word + tiles.word_step)).nonzero()[:, 0]
                chosen[wanted[here]] = z[local_row[here], target[here] - word]
                parts.append(_logsumexp_(z))
            normaliser[row : row + step] = torch.stack(parts).logsumexp(0)
        return chosen - normaliser[pick]

    @torch.no_grad()
    def divergence(self, reference: Scorer) -> Tensor:
        """KL(reference || this) of the next-token distribution of each row, in nats, float32 [R].

        Args:
            reference: The same rows under another model with as large a vocabulary.

        Raises:
            TypeError: If the reference is no scorer of this kind.
        """
        if not isinstance(reference, RowScorer):
            raise TypeError(f"rows cannot be compared with a {type(reference).__name__}")
        own, base = Tiles(self.head, self.states), Tiles(reference.head, reference.states)
        found = torch.cat([divergence_of_rows(own, base, row) for row in own.rows()])
        # Rounding may take it below zero; NaN stays.
        return found.clamp_(min=0.0).float()

    @property
    def keepable(self) -> bool:
        """Hidden states are small enough to keep."""
        return True


@dataclass(frozen=True)
class LogitScorer:
    """Full logits of the rows of one batch: the plain way, for the model's own forward.

    Attributes:
        logits: Logits [R, V]; what is computed from them can be differentiated.
        states: What the output matrix was applied to [R, d], where that was seen.
    """

    logits: Tensor
    states: Tensor | None = None

    def token_logprobs(self, pick: Tensor, targets: Tensor) -> Tensor:
        """Log-probability of each target under the row that predicts it, float32 [S]."""
        table = self.logits.float().log_softmax(-1)
        return table[pick, targets]

    def divergence(self, reference: Scorer) -> Tensor:
        """KL(reference || this) of the next-token distribution of each row, in nats, float32 [R].

        Args:
            reference: The same rows under another model with as large a vocabulary.

        Raises:
            TypeError: If the reference is no scorer of this kind.
        """
        if not isinstance(reference, LogitScorer):
            raise TypeError(f"logits cannot be compared with a {type(reference).__name__}")
        # In parts, because a few more tables of the size of the logits would not fit.
        step = max(1, ACCELERATOR_TILE_BYTES // (4 * self.logits.shape[1]))
        pairs = zip(self.logits.split(step), reference.logits.split(step), strict=True)
        return torch.cat([_divergence(*pair) for pair in pairs]).clamp(min=0.0)

    @property
    def keepable(self) -> bool:
        """Logits are too large to keep."""
        return False


def _divergence(logits: Tensor, reference: Tensor) -> Tensor:
    """KL(reference || this) of each row [R] of logits [R, V]."""
    wanted, found = reference.float().log_softmax(-1), logits.float().log_softmax(-1)
    gap = (wanted - found).masked_fill(wanted == -torch.inf, 0.0)
    # 0 * inf is NaN where the reference's probability underflows.
    return torch.where(gap == torch.inf, gap, wanted.exp() * gap).sum(-1)


def _logsumexp_(z: Tensor) -> Tensor:
    """Log-sum-exp over the last axis, overwriting the input."""
    top = z.amax(1, keepdim=True)
    # A row of minus infinity would otherwise turn into NaN.
    top.masked_fill_(top == -torch.inf, 0.0)
    return z.sub_(top).exp_().sum(1).log_().add_(top[:, 0])
