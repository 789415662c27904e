"""Renaming tensors: what is removed goes, what stays gets the index of its new block."""

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shoal.core.errors import UnsupportedModelError
from shoal.core.layout import Layout, Slot
from shoal.core.mask import Part
from shoal.models.branches import BlockBranches

log = logging.getLogger(__name__)

_PREDICTOR = re.compile(r"(model\.)?mtp\.")
"""Multi-token prediction heads that stand beside the blocks; no causal LM loads them."""


@dataclass(frozen=True)
class Renamer:
    """Maps tensor names of the dense model to those of the pruned one.

    Attributes:
        prefix: Path of the list of blocks in the names, e.g. `model.layers`.
        layout: What the blocks of the pruned model are made of.
        branches: What each block of the dense model is made of; needed where blocks are fused.
    """

    prefix: str
    layout: Layout
    branches: Sequence[BlockBranches] = ()

    @classmethod
    def of_keys(
        cls,
        keys: Iterable[str],
        block_path: str,
        layout: Layout,
        branches: Sequence[BlockBranches] = (),
    ) -> "Renamer":
        """The renamer for the keys of a file, which may lack or carry a base model's prefix.

        Args:
            keys: All tensor names of the checkpoint.
            block_path: Path of the list of blocks inside the model, e.g. `transformer.h`.
            layout: What the blocks of the pruned model are made of.
            branches: What each block of the dense model is made of.

        Raises:
            UnsupportedModelError: If the keys of the blocks cannot be told.
        """
        depth = layout.mask.depth
        listed = block_path.rpartition(".")[2]
        numbers: dict[str, set[int]] = {}
        for key in keys:
            for found in re.finditer(rf"(?:^|\.){re.escape(listed)}\.(\d+)\.", key):
                numbers.setdefault(key[: found.start(1) - 1], set()).add(int(found[1]))
        whole = sorted(p for p, seen in numbers.items() if seen >= set(range(depth)))
        own = [p for p in whole if block_path == p or block_path.endswith("." + p)]
        longer = [p for p in whole if p.endswith("." + block_path)]
        # Older layouts hold the same parts in another order: language_model.model.layers.
        parts = set(block_path.split("."))
        shared = {p: len(parts & set(p.split("."))) for p in whole}
        nearest = [p for p in whole if shared[p] == max(shared.values())]
        choice = sorted(own, key=len)[-1:] or longer or nearest
        if len(choice) != 1:
            raise UnsupportedModelError(
                f"cannot tell the tensors of the {depth} blocks {block_path} in the "
                f"checkpoint's files: candidates are {', '.join(choice) or 'none'}."
            )
        return cls(choice[0], layout, branches)

    def __call__(self, name: str) -> str | None:
        """The name in the pruned model; None for a tensor that goes."""
        head = self.prefix + "."
        if not name.startswith(head):
            if _PREDICTOR.match(name):
                log.info("dropped %s: it belongs to a multi-token prediction head", name)
                return None
            return name
        index, dot, rest = name[len(head) :].partition(".")
        if not index.isdecimal():
            return name
        old = int(index)
        if old >= self.layout.mask.depth:
            log.info("dropped %s: it belongs to a multi-token prediction head", name)
            return None
        new = self._place(old, rest)
        return None if new is None else f"{head}{new}{dot}{rest}"

    def _place(self, old: int, rest: str) -> int | None:
        """The block of the pruned model that a tensor of a dense block belongs to."""
        for new, slot in enumerate(self.layout.slots):
            if slot.attn == slot.mlp == old:
                return new
            if old in (slot.attn, slot.mlp) and self._origin(slot, rest) == old:
                return new
        return None

    def _origin(self, slot: Slot, rest: str) -> int:
        """The dense block that a tensor of a block of the pruned model comes from."""
        if slot.attn == slot.mlp or not rest:
            return slot.attn
        parts = {self.branches[i].part_of(rest) for i in (slot.attn, slot.mlp)} - {None}
        return slot.mlp if parts == {Part.MLP} else slot.attn

    def zeroes(self, name: str) -> bool:
        """Whether a tensor of the pruned model is one that silences a branch."""
        head = self.prefix + "."
        index, _, rest = name.removeprefix(head).partition(".")
        if not name.startswith(head) or not index.isdecimal():
            return False
        slot = self.layout.slots[int(index)]
        if slot.zeroed is None:
            return False
        branch = self.branches[slot.attn].branch(slot.zeroed)
        return branch is not None and rest in branch.outputs

    def origin(self, name: str) -> str:
        """The dense model's name for a name of the pruned model."""
        head = self.prefix + "."
        index, dot, rest = name.removeprefix(head).partition(".")
        if not name.startswith(head) or not index.isdecimal():
            return name
        return f"{head}{self._origin(self.layout.slots[int(index)], rest)}{dot}{rest}"
