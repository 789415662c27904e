"""What each site alone does to the model's output, the other blocks in place."""

from collections.abc import Hashable, Iterator, Sequence

from shoal.core.errors import UnsupportedModelError
from shoal.core.mask import Mask, Site
from shoal.diagnosis.layers.effects import compare_pairs, joined
from shoal.diagnosis.layers.replaced import Replacing
from shoal.diagnosis.layers.sites import Sites
from shoal.diagnosis.passages import Progress, check_finite
from shoal.diagnosis.sides import Side
from shoal.diagnosis.spaces import Columns, Look, Rows
from shoal.models.batch import TokenBatch
from shoal.models.dense import DenseModel
from shoal.models.head import Scorer
from shoal.surgery.config import check_prunable

FAILURES = (RuntimeError, ValueError, TypeError, IndexError, AttributeError, KeyError)
"""What models raise where something they need is not there, as keys and values of a block."""

TOGETHER = 16
"""Sites whose states wait to be compared, so that the dense model's are read once for all."""


def final_effects(
    dense: Side,
    sites: Sites,
    tokens: TokenBatch,
    look: Look,
    skipped: dict[str, str],
    replacing: Replacing | None = None,
    on_step: Progress | None = None,
) -> Iterator[tuple[Site, Columns]]:
    """Compare the dense model's output with that after leaving out or replacing one site.

    Args:
        dense: The dense model.
        sites: The sites.
        tokens: A micro-batch, on the model's device.
        look: What is looked at.
        skipped: Takes the sites that could not be run, and why.
        replacing: Puts in the other model's sites; None leaves them out.
        on_step: Hears of the rows of each site that was run.

    Yields:
        Each site and a value per row.

    Raises:
        NotFiniteError: If the dense model's logits are not finite.
    """
    if replacing is None:
        ends = left_out(dense, sites.sites, tokens, skipped)
    else:
        ends = ((swap.site, swap.end()) for swap in replacing.swaps(tokens))
    own = dense.rows(tokens)
    waiting: dict[Site, Rows] = {}
    for site, scorer in ends:
        waiting[site] = Rows.of(scorer)
        if on_step is not None:
            on_step(len(tokens.rows))
        if len(waiting) == TOGETHER or not scorer.keepable:
            yield from _compared(own, waiting, look)
            waiting = {}
    if waiting:
        yield from _compared(own, waiting, look)


def left_out(
    dense: Side, sites: Sequence[Site], tokens: TokenBatch, skipped: dict[str, str]
) -> Iterator[tuple[Site, Scorer]]:
    """Run the model without each site; what is common to several is run once.

    Args:
        dense: The dense model.
        sites: The sites.
        tokens: A micro-batch, on the model's device.
        skipped: Takes the sites that could not be run, and why; what it holds is not tried.
    """
    depth = dense.model.depth
    masks = {Mask(depth, frozenset({site})): site for site in sites if str(site) not in skipped}
    try:
        for mask, scorer in dense.runner.run(None, tokens, list(masks)):
            yield masks.pop(mask), scorer
    except FAILURES:
        # Whichever it was, the others may run.
        for mask, site in masks.items():
            try:
                yield from ((site, found) for _, found in dense.runner.run(None, tokens, [mask]))
            except FAILURES as error:
                skipped[str(site)] = _reason(dense.model, mask, error)


def _reason(dense: DenseModel, mask: Mask, error: Exception) -> str:
    """Why a mask cannot be run, where that is known; what is not expected is raised again."""
    if isinstance(error, UnsupportedModelError):
        return str(error)
    try:
        check_prunable(dense.config, mask)
    except UnsupportedModelError as known:
        return str(known)
    raise error


def _compared(own: Rows, others: dict[Site, Rows], look: Look) -> Iterator[tuple[Site, Columns]]:
    sites = list(others)
    parts: list[list[Columns]] = [[] for _ in sites]
    rows: dict[Hashable, Rows] = {None: own}
    rows.update(others.items())
    for i, _, found in compare_pairs(rows, [(None, site) for site in sites], look):
        parts[i].append(found)
    for site, pieces in zip(sites, parts, strict=True):
        columns = joined(pieces)
        check_finite(columns)
        yield site, columns
