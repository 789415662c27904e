"""Stacks of exactly linear blocks, h -> h + W h, whose geometry is known in closed form.

Direction 0 is planted: shifted inputs have it and adapted ones hardly. The other blocks turn the
remaining directions and shrink that one a little; an amplifier stretches it, so it is high-gain and
low-rank on shifted inputs and on those alone. What a stack should give is what it gives without its
amplifiers.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from shoal.geometry.sides import Side
from shoal.geometry.stack import Batch, Stack, Texts
from shoal.models.discover import Blocks

WIDTH, POSITIONS, TOGETHER = 9, 10, 8


class LinearBlock(nn.Module):
    """h -> h + W h.

    Args:
        update: W [d, d].
    """

    def __init__(self, update: Tensor) -> None:
        super().__init__()
        self.update = nn.Parameter(update, requires_grad=False)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Apply it to hidden states [B, T, d]."""
        return hidden_states + hidden_states @ self.update.T


class LinearModel(nn.Module):
    """Linear blocks one after another, on hidden states as they are given.

    Args:
        updates: W of each block.
    """

    def __init__(self, updates: Iterable[Tensor]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(LinearBlock(update) for update in updates)

    def forward(self, hidden: Tensor) -> Tensor:
        """Hidden states [B, T, d] that leave the last block."""
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden


def linear_stack(updates: Iterable[Tensor]) -> Stack:
    """A stack of blocks with the given W."""
    model = LinearModel(updates).eval()

    def run(inputs: Any) -> Tensor:
        with torch.no_grad():
            out: Tensor = model(inputs)
        return out

    return Stack(Blocks("layers", model.layers), run)


def plain_update(seed: int, size: float = 0.2) -> Tensor:
    """W of a block that turns all directions but the planted one, and shrinks that one."""
    generator = torch.Generator().manual_seed(seed)
    basis, _ = torch.linalg.qr(torch.randn(WIDTH - 1, WIDTH - 1, generator=generator))
    quarter_turns = torch.block_diag(*[torch.tensor([[0.0, -1.0], [1.0, 0.0]])] * (WIDTH // 2))
    update = torch.zeros(WIDTH, WIDTH)
    # At right angles to the state, so that every length grows by the same factor.
    update[1:, 1:] = size * basis @ quarter_turns @ basis.T
    update[0, 0] = -size / 4
    return update


def amplifier_update(seed: int, gain: float = 3.0) -> Tensor:
    """W of a block that does the same and stretches the planted direction."""
    update = plain_update(seed)
    update[0, 0] = gain - 1
    return update


def linear_side(
    stack: Stack, name: str, planted: float, sequences: int = 24, seed: int = 0
) -> Side:
    """A task whose inputs are Gaussian, with a given spread along the planted direction.

    The loss of an example is the mean squared distance of what leaves the last block from what
    would leave it without the amplifiers that the stack has now.
    """
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(sequences, POSITIONS, WIDTH, generator=generator)
    hidden[..., 0] *= planted
    positions = torch.ones(sequences, POSITIONS, dtype=torch.bool)
    # Of different lengths, as texts are.
    for row in range(sequences):
        positions[row, POSITIONS - row % 4 :] = False
    batches = [
        Batch.of(hidden[i : i + TOGETHER], positions[i : i + TOGETHER])
        for i in range(0, sequences, TOGETHER)
    ]
    target = hidden
    for layer in stack.blocks.layers:
        amplifies = bool(layer.get_parameter("update")[0, 0] > 0)
        target = target if amplifies else layer(target)

    def losses() -> NDArray[np.float64]:
        out = torch.cat([stack.run(batch.inputs) for batch in batches])
        found: NDArray[np.float64] = (out - target).double().square().mean((1, 2)).numpy()
        return found

    return Side(Texts(name, batches), losses, "squared error")
