"""Which sites of a model are looked at one by one, and why others are not."""

from collections.abc import Sequence
from dataclasses import dataclass

from shoal.core.errors import UnsupportedModelError
from shoal.core.mask import Part, Site
from shoal.core.tiling import span_of
from shoal.models.branches import BlockBranches
from shoal.models.dense import DenseModel
from shoal.objectives.scores.moments import State, between, why_not


@dataclass(frozen=True)
class Sites:
    """The sites of a model, block by block: the block, its attention, its MLP.

    Attributes:
        sites: Those that can be taken by themselves.
        branches: What each block is made of; empty where that is not known.
        notes: Sentences on what is left out.
    """

    sites: tuple[Site, ...]
    branches: tuple[BlockBranches, ...]
    notes: tuple[str, ...]

    def ends(self, site: Site) -> tuple[State, State]:
        """The states that enter a site and leave it."""
        return between(span_of([site]), self.branches)

    def of(self, layer: int) -> tuple[Site, ...]:
        """The sites of one block."""
        return tuple(site for site in self.sites if site.layer == layer)


def find_sites(dense: DenseModel) -> Sites:
    """Find what can be looked at singly.

    Returns:
        Every block, and attention and MLP of those that have both.
    """
    blocks = tuple(Site(i) for i in range(dense.depth))
    try:
        branches = dense.branches
    except UnsupportedModelError as error:
        return Sites(blocks, (), (f"blocks only: {str(error).rstrip('.')}.",))
    found: list[Site] = []
    alone: list[int] = []
    for block in blocks:
        halves = [Site(block.layer, part) for part in (Part.ATTN, Part.MLP)]
        apart = all(why_not(span_of([half]), branches) is None for half in halves)
        found += [block, *halves] if apart else [block]
        alone += [] if apart else [block.layer]
    notes: tuple[str, ...] = ()
    if alone:
        which = "every block" if len(alone) == dense.depth else f"block {_listed(alone)}"
        notes = (f"{which} only whole: there is no attention beside an MLP that could be parted.",)
    return Sites(tuple(found), branches, notes)


def _listed(layers: Sequence[int]) -> str:
    return ", ".join(map(str, layers))
