"""Gates placed in a model by hooks while its own forward runs."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from shoal.engine.gate_forms import Gate
from shoal.models.dense import DenseModel
from shoal.models.hidden import hidden_of, input_of, with_hidden


@dataclass
class Gates:
    """Gates alpha = 1 at every position of one micro-batch, one tensor per gate.

    Attributes:
        dense: The model.
        gates: What each scales.
    """

    dense: DenseModel
    gates: Sequence[Gate]

    @contextmanager
    def placed(self, shape: torch.Size) -> Iterator[list[Tensor]]:
        """Let the model's forward run through the gates.

        They multiply in float32, so that neither they nor their derivatives are rounded to the
        model's dtype.

        Args:
            shape: Sequences and positions of the micro-batch (B, T).

        Yields:
            Each gate, float32 [B, T], which autograd can differentiate by.
        """
        alphas = [
            torch.ones(shape, device=next(g.block.parameters()).device, requires_grad=True)
            for g in self.gates
        ]
        with ExitStack() as stack:
            for gate, alpha in zip(self.gates, alphas, strict=True):
                whole = gate.updates is None
                hook = _block_hook(alpha) if whole else _update_hook(alpha)
                for module in (gate.block,) if gate.updates is None else gate.updates:
                    handle = module.register_forward_hook(hook, with_kwargs=True)
                    stack.callback(handle.remove)
            yield alphas


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
