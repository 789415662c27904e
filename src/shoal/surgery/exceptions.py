"""Tensors that do not simply follow the block that they are in.

Some blocks have a tensor more or less because of where they stand, and transformers that several
blocks share number their adapters by the order of these blocks.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from transformers import PreTrainedConfig

from shoal.core.layout import Layout
from shoal.models.discover import text_config
from shoal.surgery import rules
from shoal.surgery.fields import read

_ADAPTER = re.compile(r"(shared_transformer\..*_adapter_list\.)(\d+)(\..*)")


@dataclass(frozen=True)
class Exceptions:
    """What is special about the tensors of one model.

    Attributes:
        not_first: Last part of the name of a tensor that the first block does not have.
        only_last: Name inside the block of a tensor that only the last block has.
        sharing: The blocks that share transformers with an adapter for each of them.
    """

    not_first: str | None = None
    only_last: str | None = None
    sharing: Sequence[int] = ()

    @classmethod
    def of(cls, config: PreTrainedConfig) -> "Exceptions":
        """The exceptions of a dense model's config."""
        text = text_config(config)
        kind = text.model_type
        sharing = read(text, "hybrid_layer_ids") or ()
        return cls(rules.LOST_IN_FIRST.get(kind), rules.ADDED_IN_LAST.get(kind), tuple(sharing))

    def moved(self, rest: str, old: int, new: int | None, layout: Layout) -> tuple[int, str] | None:
        """Where a tensor goes; None if it goes away.

        Args:
            rest: Its name inside the dense block.
            old: Index of that block.
            new: Index of the block in the pruned model, None if it is removed.
            layout: What the blocks of the pruned model are made of.
        """
        if rest == self.only_last and old == layout.mask.depth - 1:
            return len(layout) - 1, rest
        if new is None:
            return None
        if new == 0 and self.not_first and rest.rpartition(".")[2] == self.not_first:
            return None
        adapter = _ADAPTER.fullmatch(rest)
        if adapter and self.sharing:
            owner = self.sharing[int(adapter[2])]
            if owner not in layout.attn:
                return None
            order = sum(i < owner for i in self.sharing if i in layout.attn)
            return new, f"{adapter[1]}{order}{adapter[3]}"
        return new, rest

    def filled(self, rest: str, old: int, new: int, layout: Layout) -> bool:
        """Whether a tensor of the pruned model is zeros, because its block did not have it."""
        last = layout.mask.depth - 1
        return rest == self.only_last and new == len(layout) - 1 and old != last


NO_EXCEPTIONS = Exceptions()
"""Every tensor follows its block."""
