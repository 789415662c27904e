"""The units of each granularity: what one step of a search removes together.

A half step is the MLP of a block with the attention of the next. What it leaves still alternates
attention and MLP, so neighbours can be fused into ordinary blocks, as few as after the removal of a
block. Any set of blocks and half steps does; nothing else does.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum

from shoal.core.errors import UsageError
from shoal.core.mask import Part, Site

Unit = frozenset[Site]
"""The sites that one step of a search removes together."""


class Granularity(StrEnum):
    """What one unit is."""

    BLOCK = "block"
    HALF = "half"
    ATTN = "attn"
    MLP = "mlp"
    BOTH = "attn+mlp"
    MIXED = "mixed"


NOUNS = {
    Granularity.BLOCK: "block",
    Granularity.HALF: "block or half step",
    Granularity.ATTN: "attention",
    Granularity.MLP: "MLP",
    Granularity.BOTH: "sub-layer",
    Granularity.MIXED: "sub-layer",
}
"""What one unit is called."""


def plural(noun: str) -> str:
    """Several units."""
    return "blocks or half steps" if noun == NOUNS[Granularity.HALF] else f"{noun}s"


def check_protected(depth: int, protect: Iterable[int]) -> frozenset[int]:
    """The blocks that must stay.

    Raises:
        UsageError: If one lies outside the model.
    """
    protected = frozenset(protect)
    outside = sorted(p for p in protected if not 0 <= p < depth)
    if outside:
        raise UsageError(
            f"cannot protect block {outside[0]}: the model has {depth} blocks, 0 to {depth - 1}."
        )
    return protected


def block_units(depth: int, protect: Iterable[int] = ()) -> tuple[Unit, ...]:
    """Every block that is not protected, by itself."""
    protected = check_protected(depth, protect)
    return tuple(frozenset({Site(i)}) for i in range(depth) if i not in protected)


def half_step(block: int) -> Unit:
    """The MLP of a block with the attention of the next."""
    return frozenset({Site(block, Part.MLP), Site(block + 1, Part.ATTN)})


def units_of_granularity(
    granularity: Granularity,
    depth: int,
    protect: Iterable[int] = (),
    *,
    fusable: bool = False,
    can_fuse: Callable[[int, int], bool] = lambda attn, mlp: True,
) -> tuple[Unit, ...]:
    """The units of a granularity, from the first block to the last.

    Args:
        granularity: What one unit is.
        depth: Number of blocks of the dense model.
        protect: Blocks of which nothing may be removed.
        fusable: Whether what stays must fuse into ordinary blocks. Sub-layers then go in pairs.
        can_fuse: Whether the attention of one block and the MLP of another make an ordinary block.

    Raises:
        UsageError: If a protected block lies outside the model, or `fusable` leaves no unit.
    """
    granularity = Granularity(granularity)
    protected = check_protected(depth, protect)
    free = [i for i in range(depth) if i not in protected]
    if fusable and granularity in (Granularity.ATTN, Granularity.MLP):
        raise UsageError(
            f"--fusable keeps attention and MLP alternating, which removing only {granularity} "
            "never does. Use --granularity half, attn+mlp or mixed."
        )
    pairs = fusable and granularity in (Granularity.BOTH, Granularity.MIXED)
    if granularity is Granularity.HALF or pairs:
        units = []
        for i in free:
            units.append(frozenset({Site(i)}))
            if i + 1 in free and can_fuse(i, i + 1):
                units.append(half_step(i))
        return tuple(units)
    if granularity is Granularity.BLOCK:
        return block_units(depth, protected)
    parts = {Granularity.ATTN: (Part.ATTN,), Granularity.MLP: (Part.MLP,)}
    return tuple(
        frozenset({Site(i, part)})
        for i in free
        for part in parts.get(granularity, (Part.ATTN, Part.MLP))
    )
