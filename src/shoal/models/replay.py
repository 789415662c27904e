"""Running single blocks from a cached hidden state, with the arguments the model itself gives them.

The model's own forward is run once with its blocks replaced by recorders. What each block receives
besides the hidden state (attention masks, rotary tables, positions) does not depend on which blocks
are removed, so a block can then be applied to any hidden state.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from shoal.core.mask import Part, Site
from shoal.models.batch import TokenBatch
from shoal.models.dense import DenseModel
from shoal.models.hidden import StandIn, hidden_of, input_of
from shoal.models.silent import Halves


@dataclass(frozen=True)
class Captured:
    """What the blocks receive for one batch.

    Attributes:
        entry: Hidden state that enters block 0.
        arguments: For each block, its positional arguments after the hidden state and its keyword
            arguments.
    """

    entry: Tensor
    arguments: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...]


class _Recorder(StandIn):
    """Stands where a block was, notes its arguments, and hands the hidden state on."""

    def __init__(self, block: nn.Module, log: list[tuple[Tensor, Any, Any]], run: bool) -> None:
        super().__init__(block)
        self._log = log
        self._run = run

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        hidden = input_of(args, kwargs)
        rest = {k: v for k, v in kwargs.items() if k != "hidden_states"}
        self._log.append((hidden, args[1:], rest))
        return self._held[0](*args, **kwargs) if self._run else hidden


class Replay:
    """Captures and re-runs the blocks of one model.

    Args:
        dense: The model.
    """

    def __init__(self, dense: DenseModel) -> None:
        self.dense = dense
        self._plain: bool | None = None

    def capture(self, batch: TokenBatch) -> Captured:
        """Run the model's own forward around recorders.

        Blocks that return a plain tensor are not run at all. Others are run once, because the code
        around them may read the rest of what they return.

        Args:
            batch: The batch, on the model's device.
        """
        plain = self.returns_tensors(batch)
        log: list[tuple[Tensor, Any, Any]] = []
        with self._recording(log, run=not plain), torch.inference_mode():
            self._forward(batch)
        return Captured(log[0][0], tuple((args, kwargs) for _, args, kwargs in log))

    def run_block(self, layer: int, hidden: Tensor, captured: Captured) -> Tensor:
        """Apply one block to a hidden state of the captured batch.

        Args:
            layer: Index of the block.
            hidden: Hidden state [B, T, d].
            captured: What `capture` returned for this batch.
        """
        args, kwargs = captured.arguments[layer]
        return hidden_of(self.dense.blocks.layers[layer](hidden, *args, **kwargs))

    def run(self, site: Site, hidden: Tensor, captured: Captured) -> Tensor:
        """Apply one block, or one of its branches alone.

        Args:
            site: What to apply.
            hidden: Hidden state [B, T, d].
            captured: What `capture` returned for this batch.

        Raises:
            UnsupportedModelError: If the branches of the model's blocks cannot be told.
        """
        if site.part is Part.BLOCK:
            return self.run_block(site.layer, hidden, captured)
        with self.halves.only(site.layer, site.part):
            return self.run_block(site.layer, hidden, captured)

    @cached_property
    def halves(self) -> Halves:
        """The branches of the blocks."""
        return Halves(self.dense.blocks.layers, self.dense.branches)

    @cached_property
    def unhalved(self) -> frozenset[int]:
        """The blocks whose MLP does not read what their attention has added to."""
        return frozenset(i for i, b in enumerate(self.dense.branches) if not b.sequential)

    def _forward(self, batch: TokenBatch) -> None:
        # The body alone: logits are not wanted here.
        body = self.dense.module.base_model
        body(**batch.forward_arguments(self.dense.dtype))

    def returns_tensors(self, batch: TokenBatch) -> bool:
        """Whether all blocks return a plain tensor; found on the first batch and remembered."""
        if self._plain is None:
            self._plain = self._watch_returns(batch)
        return self._plain

    def _watch_returns(self, batch: TokenBatch) -> bool:
        kinds: list[bool] = []

        def note(module: nn.Module, args: Any, output: Any) -> None:
            kinds.append(isinstance(output, Tensor))

        hooks = [layer.register_forward_hook(note) for layer in self.dense.blocks.layers]
        try:
            with torch.inference_mode():
                self._forward(batch)
        finally:
            for hook in hooks:
                hook.remove()
        return all(kinds) and len(kinds) == self.dense.depth

    @contextmanager
    def _recording(self, log: list[tuple[Tensor, Any, Any]], run: bool) -> Iterator[None]:
        layers = self.dense.blocks.layers
        originals = list(layers)
        for i, block in enumerate(originals):
            layers[i] = _Recorder(block, log, run)
        try:
            yield
        finally:
            for i, block in enumerate(originals):
                layers[i] = block
