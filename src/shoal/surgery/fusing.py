"""How sub-layers are written: fused into ordinary blocks, or silenced by zeros.

* `stock`: whole blocks are left out; every checkpoint of whole blocks is one.
* `fuse`: what is left of neighbouring blocks becomes one block. Exact, and really shallower; only
  where attention and MLP alternate.
* `stock-zeroed`: every block of which something stays is written, with the removed branch's output
  projection zeroed. Loads anywhere and gives the same outputs, but is neither smaller nor faster.
* `auto`: fused as far as what is left pairs up, zeroed where it does not.
"""

from collections.abc import Sequence
from typing import Literal, get_args

from shoal.core.errors import UnsupportedModelError, UsageError, unknown_name
from shoal.core.layout import Layout
from shoal.core.mask import Mask
from shoal.models.branches import BlockBranches
from shoal.models.dense import DenseModel

Format = Literal["auto", "stock", "fuse", "stock-zeroed"]


def check_format(format: str) -> None:
    """Refuse a format that there is not.

    Raises:
        UsageError: With the ones there are.
    """
    if format not in get_args(Format):
        raise unknown_name("format", format, get_args(Format))


def layout_for(mask: Mask, format: str, branches: Sequence[BlockBranches] = ()) -> Layout:
    """The blocks that a format makes of what a mask leaves.

    Args:
        mask: What is removed.
        format: How it is written.
        branches: What each block is made of; `auto` then fuses only what can be fused.

    Raises:
        UsageError: If there is no such format, or it cannot hold this mask.
    """
    check_format(format)
    layout = Layout.of(mask, fuse=format != "stock-zeroed")
    apart = all(can_fuse(branches, s.attn, s.mlp) for s in layout.fused) if branches else True
    if format == "auto" and not apart:
        layout = Layout.of(mask, fuse=False)
    if format == "stock" and not mask.whole_blocks_only:
        raise UsageError(
            f"{mask} removes parts of blocks, which the format stock cannot leave out. Use fuse, "
            "stock-zeroed or auto."
        )
    if format == "fuse" and layout.zeroed:
        slot = layout.zeroed[0]
        raise UsageError(
            f"what {mask} leaves does not pair up into attention and MLP: {slot} stays alone. Use "
            "the format auto, which fills in a zeroed branch there, or search with --fusable."
        )
    return layout


def name_of(layout: Layout) -> str:
    """The format that a layout was written in."""
    if layout.whole:
        return "stock"
    if not layout.zeroed:
        return "fuse"
    return "fuse + zeroed" if layout.fused else "stock-zeroed"


def checked_branches(dense: DenseModel, layout: Layout) -> Sequence[BlockBranches]:
    """The branches of the dense model's blocks, once they are known to allow a layout.

    Raises:
        UnsupportedModelError: If a block cannot be fused or silenced as the layout asks.
    """
    kind, branches = dense.config.model_type, dense.branches
    for slot in layout.slots:
        for i in {slot.attn, slot.mlp} if not slot.plain else ():
            if not branches[i].paired:
                why = branches[i].why_not or f"block {i} has one branch only"
                raise UnsupportedModelError(
                    f"{kind}: {why}, so no part of it can be removed. Remove the block."
                )
        if slot.attn != slot.mlp:
            for i in (slot.attn, slot.mlp):
                if not branches[i].separable:
                    why = why_not_apart(branches[i])
                    raise UnsupportedModelError(
                        f"{kind}: block {i} cannot be fused with another: {why}. "
                        "Use the format stock-zeroed, or remove whole blocks."
                    )
        elif slot.zeroed is not None:
            branch = branches[slot.attn].branch(slot.zeroed)
            if branch is None or not branch.outputs:
                raise UnsupportedModelError(
                    f"{kind}: no parameters are known that silence the {slot.zeroed} of block "
                    f"{slot.attn}, so it cannot be removed by itself. Remove blocks or half steps."
                )
    return branches


def can_fuse(branches: Sequence[BlockBranches], attn: int, mlp: int) -> bool:
    """Whether the attention of one block and the MLP of another make an ordinary block."""
    one, other = branches[attn], branches[mlp]
    return one.separable and other.separable


def why_not_apart(branches: BlockBranches) -> str:
    """Why the branches of a block cannot come from different blocks."""
    if not branches.sequential:
        return "its attention and MLP work side by side on the same state"
    shared = ", ".join(name or "the block itself" for name in branches.shared)
    return f"attention and MLP share {shared}"
