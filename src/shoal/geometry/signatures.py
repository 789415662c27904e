"""Which blocks are high-gain, low-rank amplifiers of shifted inputs (TAPIOCA, 2605.14738).

    gain change   of E|h'_i - h'_j| / E|h_i - h_j|
    rank change   of the effective rank of what the block adds, on the data

both as the log of the shifted task's over the adapted one's. The paper's claim is that the blocks
whose removal helps have the first above 0 and the second below.
"""

import math
from collections.abc import Sequence

from shoal.core.mask import Mask
from shoal.geometry.records import Linear, Signature


def signatures(linear: Sequence[Linear], mask: Mask | None) -> tuple[Signature, ...]:
    """Compare each block on the two tasks.

    Args:
        linear: What was found of the blocks; those found on one task alone are left out.
        mask: The plan's, if there is one.

    Returns:
        One per block and class of positions, in the order of the blocks. A block counts as
        selected where the mask removes all or part of it.
    """
    found = {(one.distribution, one.layer, one.positions): one for one in linear}
    layers = {site.layer for site in mask} if mask else set()
    return tuple(
        _signature(found["id", layer, positions], ood, layer in layers)
        for (distribution, layer, positions), ood in sorted(found.items())
        if distribution == "ood" and ("id", layer, positions) in found
    )


def _signature(adapted: Linear, shifted: Linear, selected: bool) -> Signature:
    gain = _log_ratio(shifted.measured_gain, adapted.measured_gain)
    rank = _log_ratio(shifted.data_effective_rank, adapted.data_effective_rank)
    accepted = adapted.accepted and shifted.accepted
    return Signature(
        layer=adapted.layer,
        positions=adapted.positions,
        selected=selected,
        gain_change=gain,
        rank_change=rank,
        amplifier=gain > 0 and rank < 0 if accepted else None,
    )


def _log_ratio(one: float, other: float) -> float:
    """log(one / other), not a number where a block adds nothing at all."""
    return math.log(one / other) if one > 0 and other > 0 else math.nan
