"""Probe 1: every site alone, in the dense model's context (methods B.4; He et al. 2026).

Two modes. *Dropped*: the state with a site, what enters it plus what it adds, against the state
without it, what enters it. *Replaced*: the state that leaves the dense model's site against the one
that leaves another checkpoint's, given the same. In both the dense model's state comes first, so
the divergence is KL(dense || other), with the dense model's weights.

Each is taken at the site itself, behind the final norm and without it, and at the model's end,
where the other blocks have worked on the change. At the site that costs a few passes of the model
and two head passes per state; at the end, 3/2 passes of the model per block, which is why fewer
prompts serve there.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from shoal.core.errors import UnsupportedModelError
from shoal.core.mask import Mask, Site
from shoal.core.means import means
from shoal.core.records import Mean
from shoal.diagnosis.layers.final import final_effects
from shoal.diagnosis.layers.local import (
    VARIANTS,
    around_dropped,
    around_replaced,
    compare_around,
)
from shoal.diagnosis.layers.positions import by_prompt, chosen_steps, thinned_batches
from shoal.diagnosis.layers.replaced import Replacing
from shoal.diagnosis.layers.sites import find_sites
from shoal.diagnosis.passages import Passage, Progress
from shoal.diagnosis.records import Layerwise, SiteRow
from shoal.diagnosis.sides import Side
from shoal.diagnosis.spaces import Columns, Look
from shoal.engine.runners import ReplayRunner
from shoal.engine.selfcheck import CHECKED
from shoal.models.batch import TokenBatch
from shoal.models.dense import DenseModel
from shoal.models.head import Head
from shoal.models.tail import find_head
from shoal.objectives.base import ExampleBatch

FINAL_PROMPTS = 4
"""Prompts on which the effect at the model's end is taken, unless more are asked for."""


def layerwise(
    dense: Side,
    passages: Sequence[Passage],
    look: Look,
    *,
    removed: Mask | None = None,
    replacement: DenseModel | None = None,
    positions: int = 8,
    final: bool = True,
    final_prompts: int = FINAL_PROMPTS,
    batch_tokens: int = 2048,
    seed: int = 0,
    on_step: Progress | None = None,
) -> Layerwise:
    """Measure what each site does.

    Args:
        dense: The dense model.
        passages: Prompts and what the dense model wrote.
        look: What is looked at.
        removed: What a plan removes, to mark those sites.
        replacement: Another checkpoint of the same class, depth and hidden size, whose sites are
            put in place of the dense model's; None leaves sites out instead.
        positions: Most positions of each passage, evenly spaced; the first written token is always
            among them.
        final: Whether to take the effect at the model's end, too.
        final_prompts: Passages on which that is done, the first ones.
        batch_tokens: Largest number of positions that run together.
        seed: Seed of the intervals.
        on_step: Hears of the progress; see `layerwise_work` for its unit.

    Returns:
        A row per site, block by block; its means are over prompts. Where blocks are not run once
        each there are effects at the end alone, and a note.

    Raises:
        UsageError: If the replacement has another class, depth or hidden size.
        UnsupportedModelError: For a replacement, if the blocks of either cannot be run singly.
        NotFiniteError: If states or logits are not finite.
    """
    model = dense.model
    sites = find_sites(model)
    batches = _thinned(passages, positions, batch_tokens, model)
    head = _head_of(dense, batches[0].tokens)
    replacing = None
    if replacement is not None:
        replacing = Replacing(model, dense.runner, replacement, batches[0].tokens, sites)
    found = _Found(len(passages), positions)
    skipped: dict[str, str] = {}
    notes = list(sites.notes)
    ended = passages[:final_prompts] if final else ()
    with torch.inference_mode():
        for batch in batches:
            try:
                around = (
                    around_dropped(model, sites, batch.tokens)
                    if replacing is None
                    else around_replaced(replacing, sites, batch.tokens)
                )
            except UnsupportedModelError as error:
                if replacing is not None:
                    raise
                notes.append(f"only the effect at the model's end is taken: {error}")
                break
            for variant, site, columns in compare_around(around, head, look, on_step):
                found.add(variant, site, columns, batch)
            if batch is batches[0]:
                notes += _head_notes(head, around.width)
        for batch in _thinned(ended, positions, batch_tokens, model):
            for site, columns in final_effects(
                dense, sites, batch.tokens, look, skipped, replacing, on_step
            ):
                found.add("final", site, columns, batch)
    if 0 < len(ended) < len(passages):
        notes.append(
            f"the effect at the model's end is taken on the first {len(ended)} of "
            f"{len(passages)} prompts."
        )
    result = Layerwise(
        mode="dropped" if replacing is None else "replaced",
        prompts=len(passages),
        positions=sum(len(batch.tokens.rows) for batch in batches),
        sites=tuple(
            SiteRow(
                site=str(site),
                removed=False,
                normed=found.means("normed", site, seed),
                raw=found.means("raw", site, seed),
                final=found.means("final", site, seed),
            )
            for site in sites.sites
        ),
        skipped=skipped,
        notes=tuple(notes),
    )
    return result if removed is None else mark_removed(result, removed)


def layerwise_work(
    dense: Side,
    passages: Sequence[Passage],
    *,
    positions: int = 8,
    final: bool = True,
    final_prompts: int = FINAL_PROMPTS,
) -> int:
    """What `on_step` hears of in all, in comparisons of one site at one position.

    At the site there are two of each, behind the final norm and without it. What cannot be
    run is counted here and not heard of.
    """
    counts = [len(chosen_steps(len(p.written), positions)) for p in passages]
    ended = sum(counts[:final_prompts]) if final else 0
    return len(find_sites(dense.model).sites) * (VARIANTS * sum(counts) + ended)


def mark_removed(found: Layerwise, removed: Mask) -> Layerwise:
    """The same results with the sites marked that a mask removes; a block's parts go with it."""
    gone = removed.sublayers
    rows = [
        row.model_copy(update={"removed": gone.issuperset(Site.parse(row.site).sublayers)})
        for row in found.sites
    ]
    return found.model_copy(update={"sites": tuple(rows)})


class _Found:
    """A mean per prompt of every quantity of every site."""

    def __init__(self, prompts: int, positions: int) -> None:
        self._prompts, self._positions = prompts, positions
        self._values: dict[tuple[str, Site], dict[str, NDArray[np.float64]]] = {}

    def add(self, variant: str, site: Site, columns: Columns, batch: ExampleBatch) -> None:
        """Note values per row of a micro-batch."""
        tables = self._values.setdefault((variant, site), {})
        for name, values in by_prompt(columns, batch, self._positions).items():
            table = tables.setdefault(name, np.full((self._prompts, 1), np.nan))
            table[list(batch.examples), 0] = values

    def means(self, variant: str, site: Site, seed: int) -> dict[str, Mean]:
        """Means over prompts; empty where nothing was noted."""
        return means(self._values.get((variant, site), {}), seed)


def _thinned(
    passages: Sequence[Passage], positions: int, batch_tokens: int, model: DenseModel
) -> list[ExampleBatch]:
    batches = thinned_batches(passages, positions, batch_tokens)
    return [ExampleBatch(b.tokens.to(model.device), b.examples, b.layout) for b in batches]


def _head_of(dense: Side, tokens: TokenBatch) -> Head | None:
    if isinstance(dense.runner, ReplayRunner):
        return dense.runner.head
    return find_head(dense.model, tokens.first(CHECKED))


def _head_notes(head: Head | None, width: int) -> list[str]:
    if head is None:
        return [
            "the head of this architecture cannot be taken apart: at the sites only the hidden "
            "space is looked at."
        ]
    if head.weight.shape[1] != width:
        return [
            f"the output matrix reads {head.weight.shape[1]} numbers and states have {width}: "
            "without the final norm only the hidden space is looked at."
        ]
    return []
