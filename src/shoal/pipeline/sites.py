"""What can be removed at each block of a model, and how it will be written."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn
from transformers import PreTrainedConfig

from shoal.core.layout import Layout
from shoal.core.mask import Mask, Part, Site
from shoal.core.units import half_step
from shoal.models.branches import BlockBranches
from shoal.pipeline.space import Writable
from shoal.surgery.fusing import can_fuse, why_not_apart

LEFT_OUT, FUSED, ZEROED = "left out", "fused", "zeroed"


@dataclass(frozen=True)
class Removal:
    """Whether and how something can be removed.

    Attributes:
        written: How a checkpoint says it; None where it cannot be removed.
        reason: Why not.
    """

    written: str | None
    reason: str = ""

    def __str__(self) -> str:
        return self.written or f"no: {self.reason}"


@dataclass(frozen=True)
class BlockSites:
    """What can be removed at neighbouring blocks that are alike in this.

    Attributes:
        first: First block.
        last: Last block.
        block: The block.
        attn: Its attention.
        mlp: Its MLP.
        half: Its MLP with the attention of the next block.
    """

    first: int
    last: int
    block: Removal
    attn: Removal
    mlp: Removal
    half: Removal


def sites(
    config: PreTrainedConfig, depth: int, branches: Sequence[BlockBranches] | None, why_none: str
) -> tuple[BlockSites, ...]:
    """What can be removed, block by block, with neighbours that are alike put together.

    Args:
        config: The model's config.
        depth: Number of blocks.
        branches: What the blocks are made of, if that is known.
        why_none: Why it is not.
    """
    writable = Writable(config)
    found: list[BlockSites] = []
    for i in range(depth):
        block = _block(writable, depth, i)
        if branches is None:
            none = Removal(None, why_none)
            here = BlockSites(i, i, block, none, none, none)
        else:
            attn, mlp = (_part(config, depth, branches, Site(i, p)) for p in (Part.ATTN, Part.MLP))
            half = _half(writable, depth, branches, i)
            here = BlockSites(i, i, block, attn, mlp, half)
        last = found[-1] if found else None
        alike = last and (last.block, last.attn, last.mlp, last.half) == (
            here.block,
            here.attn,
            here.mlp,
            here.half,
        )
        if last and alike:
            found[-1] = BlockSites(last.first, i, here.block, here.attn, here.mlp, here.half)
        else:
            found.append(here)
    return tuple(found)


def _block(writable: Writable, depth: int, i: int) -> Removal:
    reason = writable.why_not(Mask.of(depth, [i]))
    return Removal(LEFT_OUT) if reason is None else Removal(None, _short(reason))


def _part(
    config: PreTrainedConfig, depth: int, branches: Sequence[BlockBranches], site: Site
) -> Removal:
    own = branches[site.layer]
    branch = own.branch(site.part)
    if not own.paired:
        only = own.why_not or ("it is all of the block" if branch else "the block has none")
        return Removal(None, only)
    zeroed = Writable(config, fused=False)
    reason = zeroed.why_not(Mask(depth, frozenset({site})))
    if reason is not None:
        return Removal(None, _short(reason))
    if branch is None or not branch.outputs:
        return Removal(None, "no parameters are known that silence it")
    return Removal(ZEROED)


def _half(writable: Writable, depth: int, branches: Sequence[BlockBranches], i: int) -> Removal:
    if i + 1 == depth:
        return Removal(None, "there is no next block")
    if not branches[i].paired or not branches[i + 1].paired:
        return Removal(None, "a block has one branch only")
    if not can_fuse(branches, i, i + 1):
        apart = next(b for b in (branches[i], branches[i + 1]) if not b.separable)
        return Removal(None, why_not_apart(apart))
    mask = Mask(depth, half_step(i))
    reason = writable.why_not(mask)
    if reason is not None or Layout.of(mask).zeroed:
        return Removal(None, _short(reason or "what is left does not pair up"))
    return Removal(FUSED)


def _short(reason: str) -> str:
    """A refusal without the words that every one begins with."""
    return reason.partition(": ")[2] or reason


def mlp_kind(layer: nn.Module) -> str:
    """Whether a block holds experts."""
    names = {name.rpartition(".")[2] for name, _ in layer.named_modules()}
    return "MoE" if names & {"experts", "local_experts"} else "dense"
