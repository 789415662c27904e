"""Renaming tensors: removed blocks go, kept blocks get their new index."""

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass

from shoal.core.errors import UnsupportedModelError
from shoal.core.mask import Mask

log = logging.getLogger(__name__)

_PREDICTOR = re.compile(r"(model\.)?mtp\.")
"""Multi-token prediction heads that stand beside the blocks; no causal LM loads them."""


@dataclass(frozen=True)
class Renamer:
    """Maps tensor names of the dense model to those of the pruned one.

    Attributes:
        prefix: Path of the list of blocks in the names, e.g. `model.layers`.
        mask: The blocks to remove.
    """

    prefix: str
    mask: Mask

    @classmethod
    def of_keys(cls, keys: Iterable[str], block_path: str, mask: Mask) -> "Renamer":
        """The renamer for the keys of a file, which may lack or carry a base model's prefix.

        Args:
            keys: All tensor names of the checkpoint.
            block_path: Path of the list of blocks inside the model, e.g. `transformer.h`.
            mask: The blocks to remove.

        Raises:
            UnsupportedModelError: If the keys of the blocks cannot be told.
        """
        listed = block_path.rpartition(".")[2]
        numbers: dict[str, set[int]] = {}
        for key in keys:
            for found in re.finditer(rf"(?:^|\.){re.escape(listed)}\.(\d+)\.", key):
                numbers.setdefault(key[: found.start(1) - 1], set()).add(int(found[1]))
        whole = sorted(p for p, seen in numbers.items() if seen >= set(range(mask.depth)))
        own = [p for p in whole if block_path == p or block_path.endswith("." + p)]
        longer = [p for p in whole if p.endswith("." + block_path)]
        # Older layouts hold the same parts in another order: language_model.model.layers.
        parts = set(block_path.split("."))
        shared = {p: len(parts & set(p.split("."))) for p in whole}
        nearest = [p for p in whole if shared[p] == max(shared.values())]
        choice = sorted(own, key=len)[-1:] or longer or nearest
        if len(choice) != 1:
            raise UnsupportedModelError(
                f"cannot tell the tensors of the {mask.depth} blocks {block_path} in the "
                f"checkpoint's files: candidates are {', '.join(choice) or 'none'}."
            )
        return cls(choice[0], mask)

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
        if old >= self.mask.depth:
            log.info("dropped %s: it belongs to a multi-token prediction head", name)
            return None
        if old not in self.mask.kept:
            return None
        return f"{head}{self.mask.kept.index(old)}{dot}{rest}"

    def origin(self, name: str) -> str:
        """The dense model's name for a name of the pruned model."""
        head = self.prefix + "."
        index, dot, rest = name.removeprefix(head).partition(".")
        if not name.startswith(head) or not index.isdecimal():
            return name
        return f"{head}{self.mask.kept[int(index)]}{dot}{rest}"
