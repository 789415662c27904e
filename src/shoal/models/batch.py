"""A micro-batch of tokens together with which of its next-token predictions are scored.

Scored tokens point at rows, rows at positions, and segments gather scored tokens, so that logits
are computed once per position that needs them and nowhere else. For a prompt `p q` with the choices
`a b` and `c`, packed into one row of tokens:

    position      0  1  2       input  p q a      (b and c predict nothing, so they are not run)
    rows          1  2          the positions whose logits are needed
    scored token  a  b  c
    pick          0  1  0       which row predicts it: a and c both follow q
    segment       0  0  1       which choice it belongs to

Sequences are padded on the right. Causal attention cannot look ahead, so padding needs no mask.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class TokenBatch:
    """Tokens to run and predictions to score.

    Attributes:
        input_ids: Token ids [B, T], right-padded.
        rows: Flat positions in B*T whose logits are needed [R].
        pick: For each scored token, its row [S].
        targets: For each scored token, its id [S].
        segment: For each scored token, the segment that it adds to [S].
        num_segments: Number of segments.
        position_ids: Positions [B, T], where they are not simply 0..T-1.
        attend: Which position may look at which [B, T, T] (bool), where that is not simply causal.
        owner: For each position [B, T] the example of the micro-batch that it belongs to, by its
            place among those, and -1 for padding; None where nobody noted it.
    """

    input_ids: Tensor
    rows: Tensor
    pick: Tensor
    targets: Tensor
    segment: Tensor
    num_segments: int
    position_ids: Tensor | None = None
    attend: Tensor | None = None
    owner: Tensor | None = None

    @classmethod
    def scored_everywhere(cls, ids: Tensor) -> Self:
        """A batch in which every next-token prediction is scored, one segment per row.

        Args:
            ids: Token ids [B, T].
        """
        rows, length = ids.shape
        wanted = torch.arange(rows * length).view(rows, length)[:, :-1].reshape(-1)
        return cls(
            input_ids=ids,
            rows=wanted,
            pick=torch.arange(len(wanted)),
            targets=ids[:, 1:].reshape(-1),
            segment=torch.arange(rows).repeat_interleave(length - 1),
            num_segments=rows,
        )

    @property
    def num_tokens(self) -> int:
        """Positions that run through the blocks, padding included."""
        return self.input_ids.numel()

    def to(self, device: torch.device) -> Self:
        """The same batch on another device."""
        moved: dict[str, Any] = {
            name: value.to(device)
            for name, value in vars(self).items()
            if isinstance(value, Tensor)
        }
        return replace(self, **moved)

    def first(self, positions: int) -> Self:
        """The first sequences of the batch, at least one, with at most so many positions."""
        count = max(1, positions // self.input_ids.shape[1])
        stay = self.rows < count * self.input_ids.shape[1]
        scored = stay[self.pick]
        place = stay.cumsum(0) - 1
        return replace(
            self,
            input_ids=self.input_ids[:count],
            rows=self.rows[stay],
            pick=place[self.pick[scored]],
            targets=self.targets[scored],
            segment=self.segment[scored],
            position_ids=None if self.position_ids is None else self.position_ids[:count],
            attend=None if self.attend is None else self.attend[:count],
            owner=None if self.owner is None else self.owner[:count],
        )

    def forward_arguments(self, dtype: torch.dtype) -> dict[str, Any]:
        """Keyword arguments for the model's own forward.

        Args:
            dtype: Dtype of the hidden states, which an additive attention mask must share.
        """
        arguments: dict[str, Any] = {"input_ids": self.input_ids, "use_cache": False}
        if self.position_ids is not None:
            arguments["position_ids"] = self.position_ids
        if self.attend is not None:
            blocked = torch.finfo(dtype).min
            mask = torch.zeros(self.attend.shape, dtype=dtype, device=self.attend.device)
            arguments["attention_mask"] = mask.masked_fill_(~self.attend, blocked)[:, None]
        return arguments

    def segment_sums(self, token_scores: Tensor) -> Tensor:
        """Add up scores of the scored tokens by segment, in float64.

        Args:
            token_scores: One score per scored token [S].

        Returns:
            One sum per segment [num_segments].
        """
        sums = torch.zeros(self.num_segments, dtype=torch.float64, device=token_scores.device)
        return sums.index_add_(0, self.segment, token_scores.double())

    def segment_lengths(self) -> Tensor:
        """Number of scored tokens per segment [num_segments]."""
        return torch.bincount(self.segment, minlength=self.num_segments)
