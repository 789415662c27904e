"""Gates on the blocks of a model, placed by hooks while its own forward runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from shoal.engine.gate_forms import Updates
from shoal.models.dense import DenseModel
from shoal.models.masked import hidden_of, input_of, with_hidden


@dataclass
class Gates:
    """Gates alpha = 1 at every position of one micro-batch, one tensor per block.

    Attributes:
        dense: The model.
        updates: What the gates scale per block, or None for the change that a block makes.
    """

    dense: DenseModel
    updates: tuple[Updates, ...] | None

    @contextmanager
    def placed(self, shape: torch.Size) -> Iterator[list[Tensor]]:
        """Let the model's forward run through the gates.

        They multiply in float32, so that neither they nor their derivatives are rounded to the
        model's dtype.

        Args:
            shape: Sequences and positions of the micro-batch (B, T).

        Yields:
            The gate of each block, float32 [B, T], which autograd can differentiate by.
        """
        layers = self.dense.blocks.layers
        alphas = [
            torch.ones(shape, device=next(b.parameters()).device, requires_grad=True)
            for b in layers
        ]
        handles = []
        for i, block in enumerate(layers):
            if self.updates is None:
                hook = _block_hook(alphas[i])
                handles.append(block.register_forward_hook(hook, with_kwargs=True))
            else:
                hook = _update_hook(alphas[i])
                handles += [
                    m.register_forward_hook(hook, with_kwargs=True) for m in self.updates[i]
                ]
        try:
            yield alphas
        finally:
            for handle in handles:
                handle.remove()


def _spread(alpha: Tensor, hidden: Tensor) -> Tensor:
    """A gate per position, shaped to multiply hidden states [..., B, T, d] or [B*T, d]."""
    return alpha.reshape(-1, 1) if hidden.dim() == 2 else alpha[..., None]


def _update_hook(alpha: Tensor) -> Any:
    def scale(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        update = output[0] if isinstance(output, list | tuple) else output
        scaled = update.to(_wide(update)) * _spread(alpha, update)
        return with_hidden(output, scaled.to(update.dtype))

    return scale


def _block_hook(alpha: Tensor) -> Any:
    def scale(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        entry, out = input_of(args, kwargs), hidden_of(output)
        wide = out.to(_wide(out))
        # At alpha = 1 this is the block's own output to the last bit.
        gated = wide + (_spread(alpha, out) - 1.0) * (wide - entry.to(wide.dtype))
        return with_hidden(output, gated.to(out.dtype))

    return scale


def _wide(hidden: Tensor) -> torch.dtype:
    return torch.promote_types(hidden.dtype, torch.float32)
