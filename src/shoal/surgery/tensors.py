"""Renaming tensors: what is removed goes, what stays gets the index of its new block."""

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shoal.core.errors import UnsupportedModelError
from shoal.core.layout import Layout, Slot
from shoal.core.mask import Part
from shoal.models.branches import BlockBranches
from shoal.surgery.exceptions import NO_EXCEPTIONS, Exceptions

log = logging.getLogger(__name__)

_PREDICTOR = re.compile(r"(model\.)?mtp\.")
"""Multi-token prediction heads that stand beside the blocks; no causal LM loads them."""

_INDEXED = re.compile(r"(?:^|\.)(\d+)\.")


@dataclass(frozen=True)
class Renamer:
    """Maps tensor names of the dense model to those of the pruned one.

    Attributes:
        prefix: Path of the list of blocks in the names, e.g. `model.layers`.
        layout: What the blocks of the pruned model are made of.
        branches: What each block of the dense model is made of; needed where blocks are fused.
        twins: Paths of further lists, where blocks have a part in each of several stacks.
        exceptions: Names that do not follow the block that they are in.
    """

    prefix: str
    layout: Layout
    branches: Sequence[BlockBranches] = ()
    twins: tuple[str, ...] = ()
    exceptions: Exceptions = NO_EXCEPTIONS

    @classmethod
    def of_keys(
        cls,
        keys: Iterable[str],
        block_path: str,
        layout: Layout,
        branches: Sequence[BlockBranches] = (),
        twins: Iterable[str] = (),
        exceptions: Exceptions = NO_EXCEPTIONS,
    ) -> "Renamer":
        """The renamer for the keys of a file, which may lack or carry a base model's prefix.

        Args:
            keys: All tensor names of the checkpoint.
            block_path: Path of the list of blocks inside the model, e.g. `transformer.h`.
            layout: What the blocks of the pruned model are made of.
            branches: What each block of the dense model is made of.
            twins: Paths of further lists of blocks.
            exceptions: Names that do not follow the block that they are in.

        Raises:
            UnsupportedModelError: If the keys of the blocks cannot be told.
        """
        lists = _lists_in(keys, layout.mask.depth)
        first, *others = (_list_of(lists, path, layout) for path in (block_path, *twins))
        return cls(first, layout, branches, tuple(others), exceptions)

    @property
    def lists(self) -> tuple[str, ...]:
        """The paths of all lists of blocks."""
        return (self.prefix, *self.twins)

    def place(self, name: str) -> tuple[str, int, str] | None:
        """The list, the index and the name inside the block of a tensor; None outside blocks."""
        for path in self.lists:
            if name.startswith(path + "."):
                index, _, rest = name[len(path) + 1 :].partition(".")
                if index.isdecimal():
                    return path, int(index), rest
        return None

    def __call__(self, name: str) -> str | None:
        """The name in the pruned model; None for a tensor that goes."""
        place = self.place(name)
        if place is None:
            if _PREDICTOR.match(name):
                log.info("dropped %s: it belongs to a multi-token prediction head", name)
                return None
            return name
        path, old, rest = place
        if old >= self.layout.mask.depth:
            log.info("dropped %s: it belongs to a multi-token prediction head", name)
            return None
        new = self._block_of(old, rest)
        moved = self.exceptions.moved(rest, old, new, self.layout)
        return None if moved is None else f"{path}.{moved[0]}.{moved[1]}"

    def _block_of(self, old: int, rest: str) -> int | None:
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
        """Whether a tensor of the pruned model is one that silences a branch, or is filled in."""
        place = self.place(name)
        if place is None:
            return False
        _, new, rest = place
        slot = self.layout.slots[new]
        if self.exceptions.filled(rest, self._origin(slot, rest), new, self.layout):
            return True
        if slot.zeroed is None:
            return False
        branch = self.branches[slot.attn].branch(slot.zeroed)
        return branch is not None and rest in branch.outputs

    def origin(self, name: str) -> str:
        """The dense model's name for a module or tensor of the pruned model."""
        place = self.place(name)
        if place is None:
            return name
        path, new, rest = place
        return f"{path}.{self._origin(self.layout.slots[new], rest)}.{rest}"


def _lists_in(keys: Iterable[str], depth: int) -> list[str]:
    """Paths of outermost lists in tensor names that are at least as long as the model is deep."""
    numbers: dict[str, set[int]] = {}
    for key in keys:
        found = _INDEXED.search(key)
        if found:
            numbers.setdefault(key[: found.start(1)].rstrip("."), set()).add(int(found[1]))
    return sorted(p for p, seen in numbers.items() if seen >= set(range(depth)))


def _list_of(lists: Sequence[str], path: str, layout: Layout) -> str:
    """The list in a file's names that stands for a list of the model."""
    own = [p for p in lists if path == p or path.endswith("." + p)]
    longer = [p for p in lists if p.endswith("." + path)]
    # Older layouts hold the same parts in another order, language_model.model.layers, or call the
    # list something else.
    parts = set(path.split("."))
    listed = path.rpartition(".")[2]
    alike = [p for p in lists if p.rpartition(".")[2] == listed] or list(lists)
    shared = {p: len(parts & set(p.split("."))) for p in alike}
    nearest = [p for p in alike if shared[p] == max(shared.values())]
    choice = sorted(own, key=len)[-1:] or longer or nearest
    if len(choice) != 1:
        raise UnsupportedModelError(
            f"cannot tell the tensors of the {layout.mask.depth} blocks {path} in the "
            f"checkpoint's files: candidates are {', '.join(choice) or 'none'}."
        )
    return choice[0]
