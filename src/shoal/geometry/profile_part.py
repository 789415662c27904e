"""The profiles of both tasks, and whether pruning brings the shifted one closer to the adapted."""

import numpy as np

from shoal.core.mask import Mask
from shoal.geometry.interventions import removed
from shoal.geometry.profiles import ProfileTable, Values, alignment_gap, profile
from shoal.geometry.records import Change, Gaps, Profile
from shoal.geometry.resampling import draws, interval, resampled, resampled_pairs
from shoal.geometry.sides import Side
from shoal.geometry.stack import Stack


def profiles_part(
    stack: Stack, id: Side, ood: Side, mask: Mask | None, seed: int = 0
) -> tuple[dict[str, Profile], dict[str, Change]]:
    """Profile both tasks, with a mask also the pruned model.

    Args:
        stack: The model.
        id: The task that it is adapted to.
        ood: The shifted one.
        mask: What the plan removes, if there is one.
        seed: Seed of the bootstraps.

    Returns:
        The profiles `id` and `ood`, with a mask also `id_pruned` and `ood_pruned`; and with a mask
        how each gap of the shifted task to the dense model's adapted profile changes.
    """
    tables = {"id": profile(stack, id.texts), "ood": profile(stack, ood.texts)}
    changes: dict[str, Change] = {}
    if mask is not None:
        with removed(stack, mask):
            tables["id_pruned"] = profile(stack, id.texts)
            tables["ood_pruned"] = profile(stack, ood.texts)
        changes = gap_changes(tables["ood"], tables["ood_pruned"], tables["id"], seed)
    return {name: table.to_record(seed) for name, table in tables.items()}, changes


def gap_changes(
    before: ProfileTable, after: ProfileTable, reference: ProfileTable, seed: int = 0
) -> dict[str, Change]:
    """How the gaps to a reference change, with a paired bootstrap over sequences.

    A resample holds the same sequences before and after, and sequences of the reference drawn on
    their own.

    Args:
        before: The shifted task in the dense model.
        after: The same sequences under an intervention.
        reference: The adapted task.
        seed: Seed of the bootstrap.

    Returns:
        By the names of `Gaps`; those of last states need two sequences of each task.
    """
    weights = draws(before.sequences, [seed, 0])
    others = _profiles(reference, draws(reference.sequences, [seed, 1]))
    one, other = (_profiles(table, weights) for table in (before, after))
    start, end = before.gaps(reference), after.gaps(reference)
    found = {}
    for name in Gaps.model_fields:
        first, last = getattr(start, name), getattr(end, name)
        if first is None or last is None:
            continue
        # Between infinite gaps there is no difference, and no interval: those are left out.
        with np.errstate(invalid="ignore"):
            drawn = alignment_gap(other[name], others[name])
            drawn = drawn - alignment_gap(one[name], others[name])
        change = interval(last - first, drawn, before.sequences)
        found[name] = Change(before=first, after=last, change=change)
    return found


def _profiles(table: ProfileTable, weights: Values) -> dict[str, Values]:
    """The profiles of resamples [R, N + 1], by the names of `Gaps`."""
    found = {
        name: resampled(getattr(table, name), weights)
        for name in ("norm", "distance", "cosine", "last_norm")
    }
    for name in ("last_distance", "last_cosine"):
        depths = [resampled_pairs(apart, weights) for apart in getattr(table, name)]
        found[name] = np.stack(depths, 1)
    return found
