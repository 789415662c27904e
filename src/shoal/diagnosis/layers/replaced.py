"""Sites of the dense model replaced, one at a time, by another checkpoint's.

The other model's site reads what the dense model's site reads: the same hidden state over the whole
text, so that its attention sees the whole context. What it receives besides (attention mask, rotary
tables) comes from its own forward over the same tokens.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from shoal.core.errors import UnsupportedModelError, UsageError
from shoal.core.mask import Part, Site
from shoal.diagnosis.layers.sites import Sites
from shoal.diagnosis.layers.states import check_layout
from shoal.engine.runners import ReplayRunner, Runner
from shoal.engine.selfcheck import choose_runner
from shoal.models.batch import TokenBatch
from shoal.models.dense import DenseModel
from shoal.models.head import Scorer
from shoal.models.replay import Captured
from shoal.models.silent import Halves


@dataclass(frozen=True)
class Swapped:
    """One site of the dense model, and the other model's in its place.

    Attributes:
        site: The site.
        dense: State that leaves the dense model's site [B, T, d].
        other: State that leaves the other model's site, given the same [B, T, d].
        end: Runs the rest of the dense model behind the other model's site.
    """

    site: Site
    dense: Tensor
    other: Tensor
    end: Callable[[], Scorer]


class Replacing:
    """Runs the sites of two models on the same states.

    Args:
        dense: The dense model.
        runner: How it is run.
        other: The other model.
        batch: A real micro-batch, on any device, to check on that blocks can be run singly.
        sites: The sites of the dense model.

    Raises:
        UsageError: If the models differ in class, depth or hidden size.
        UnsupportedModelError: If the blocks of either cannot be run singly.
    """

    def __init__(
        self, dense: DenseModel, runner: Runner, other: DenseModel, batch: TokenBatch, sites: Sites
    ) -> None:
        _check_alike(dense, other)
        mine = runner if isinstance(runner, ReplayRunner) else _replayed(dense, batch)
        self._replay, self._head = mine.replay, mine.head
        self._theirs = _replayed(other, batch).replay
        self._sites = sites
        # The dense model's branches: they cannot be seen where the other's weights are zeros.
        self._halves = Halves(other.blocks.layers, sites.branches)

    def swaps(self, batch: TokenBatch) -> Iterator[Swapped]:
        """Replace each site, in the order of the blocks, along the dense model's states.

        Args:
            batch: The micro-batch, on the dense model's device.
        """
        own = self._replay.capture(batch)
        theirs = self._theirs.capture(batch.to(self._theirs.dense.device))
        entry = own.entry
        check_layout(self._replay.dense, entry, batch)
        for layer in range(self._replay.dense.depth):
            leaving = self._run(Site(layer), entry, own)
            for site in self._sites.of(layer):
                given = entry
                if site.part is Part.MLP and self._sites.branches[layer].sequential:
                    given = self._run(Site(layer, Part.ATTN), entry, own)
                whole = site.part is Part.BLOCK
                dense = leaving if whole else self._run(site, given, own)
                other = self._run_theirs(site, given, theirs)
                yield Swapped(
                    site,
                    dense,
                    other,
                    partial(self._end, site, leaving, dense, other, own, batch.rows),
                )
            entry = leaving

    def _end(
        self, site: Site, leaving: Tensor, dense: Tensor, other: Tensor, own: Captured, rows: Tensor
    ) -> Scorer:
        hidden = other
        if site.part is not Part.BLOCK:
            if not self._sites.branches[site.layer].sequential:
                # The branches are added up, and so is a change of one of them.
                hidden = leaving + (other - dense)
            elif site.part is Part.ATTN:
                hidden = self._run(Site(site.layer, Part.MLP), other, own)
        for layer in range(site.layer + 1, self._replay.dense.depth):
            hidden = self._run(Site(layer), hidden, own)
        return self._head.score(hidden, rows)

    def _run(self, site: Site, hidden: Tensor, own: Captured) -> Tensor:
        # A copy, because some blocks add in place.
        return self._replay.run(site, hidden.clone(), own)

    def _run_theirs(self, site: Site, hidden: Tensor, theirs: Captured) -> Tensor:
        """The other model's site; it is given a state of its own dtype on its own device."""
        given = hidden.to(theirs.entry.device, theirs.entry.dtype, copy=True)
        with self._halves.only(site.layer, site.part):
            found = self._theirs.run_block(site.layer, given, theirs)
        return found.to(hidden.device, hidden.dtype)


def _replayed(model: DenseModel, batch: TokenBatch) -> ReplayRunner:
    choice = choose_runner(model, batch.to(model.device))
    if isinstance(choice.runner, ReplayRunner):
        return choice.runner
    raise UnsupportedModelError(
        f"the sites of {model.source.id} cannot be put into another model one by one: "
        f"{choice.reason}. Leave out the layerwise probe, or compare a plan, whose sites are "
        "dropped instead."
    )


def _check_alike(dense: DenseModel, other: DenseModel) -> None:
    mine, theirs = (
        (type(m.module).__name__, m.depth, m.module.get_input_embeddings().weight.shape[-1])
        for m in (dense, other)
    )
    if mine == theirs:
        return
    raise UsageError(
        "sites can be replaced only by those of a checkpoint with the same class, depth and hidden "
        f"size: {dense.source.id} is {_shape(*mine)}, {other.source.id} is {_shape(*theirs)}. "
        "Leave out the layerwise probe."
    )


def _shape(name: str, depth: int, width: int) -> str:
    return f"{name} with {depth} blocks of size {width}"
