"""Which blocks the pruned model consists of, and what each of them is made of.

The sub-layers that stay are taken in order. An attention followed by an MLP makes an ordinary
block, whether both come from one block of the dense model or not: fusing [attention 3] and [MLP 4]
is exact, because what the one adds to the hidden state is what the other reads. Where two
attentions or two MLPs follow one another, the missing branch is filled in from the same block with
its output zeroed.

    removed       -[3.mlp,4.attn]              -[3.mlp]
    dense         A2 M2 A3 M3 A4 M4            A2 M2 A3 M3 A4 M4
    kept          A2 M2 A3       M4            A2 M2 A3    A4 M4
    pruned        [A2 M2][A3 M4]               [A2 M2][A3 zero][A4 M4]
"""

from dataclasses import dataclass
from functools import cached_property

from shoal.core.mask import Mask, Part, Site


@dataclass(frozen=True, slots=True)
class Slot:
    """One block of the pruned model.

    Attributes:
        attn: The block of the dense model that its attention comes from.
        mlp: The block that its MLP comes from.
        zeroed: The branch whose output is zeroed, or None.
    """

    attn: int
    mlp: int
    zeroed: Part | None = None

    @property
    def plain(self) -> bool:
        """Whether it is a block of the dense model as it was."""
        return self.attn == self.mlp and self.zeroed is None

    def __str__(self) -> str:
        if self.plain:
            return str(self.attn)
        parts = [
            str(site)
            for site in (Site(self.attn, Part.ATTN), Site(self.mlp, Part.MLP))
            if site.part is not self.zeroed
        ]
        return "+".join(parts)


@dataclass(frozen=True)
class Layout:
    """The blocks of the pruned model, in order.

    Attributes:
        mask: What is removed from the dense model.
        slots: The blocks that are made of the rest.
    """

    mask: Mask
    slots: tuple[Slot, ...]

    @classmethod
    def of(cls, mask: Mask, *, fuse: bool = True) -> "Layout":
        """The layout of a mask.

        Args:
            mask: What is removed.
            fuse: Pair what is left of neighbouring blocks, which makes the model as shallow as can
                be; else every block of which something stays remains a block of its own.
        """
        gone = mask.sublayers
        if mask.whole_blocks_only:
            return cls(mask, tuple(Slot(i, i) for i in mask.kept))
        stays = [site for i in range(mask.depth) for site in Site(i).sublayers if site not in gone]
        slots: list[Slot] = []
        waiting: int | None = None
        for site in stays:
            if site.part is Part.ATTN:
                if waiting is not None:
                    slots.append(Slot(waiting, waiting, Part.MLP))
                waiting = site.layer
            elif waiting is not None and (fuse or waiting == site.layer):
                slots.append(Slot(waiting, site.layer))
                waiting = None
            else:
                if waiting is not None:
                    slots.append(Slot(waiting, waiting, Part.MLP))
                    waiting = None
                slots.append(Slot(site.layer, site.layer, Part.ATTN))
        if waiting is not None:
            slots.append(Slot(waiting, waiting, Part.MLP))
        return cls(mask, tuple(slots))

    @cached_property
    def attn(self) -> tuple[int, ...]:
        """For each block, where its attention comes from."""
        return tuple(slot.attn for slot in self.slots)

    @cached_property
    def mlp(self) -> tuple[int, ...]:
        """For each block, where its MLP comes from."""
        return tuple(slot.mlp for slot in self.slots)

    @property
    def zeroed(self) -> tuple[Slot, ...]:
        """The blocks with a branch that is zeroed."""
        return tuple(slot for slot in self.slots if slot.zeroed is not None)

    @property
    def fused(self) -> tuple[Slot, ...]:
        """The blocks that are made of two."""
        return tuple(slot for slot in self.slots if slot.attn != slot.mlp)

    @property
    def whole(self) -> bool:
        """Whether every block is one of the dense model as it was."""
        return all(slot.plain for slot in self.slots)

    def __len__(self) -> int:
        return len(self.slots)


def fuses(mask: Mask) -> bool:
    """Whether what a mask leaves pairs up into ordinary blocks without zeroing anything."""
    return not Layout.of(mask).zeroed
