"""The paper's claims, each answered from the results of a lab run."""

from collections.abc import Sequence

from shoal.lab.claims.causes import inverse_restores, monotone
from shoal.lab.claims.gains import (
    beyond_controls,
    gain_under_shift,
    helped,
    no_gain_in_distribution,
)
from shoal.lab.claims.geometry import (
    amplifiers,
    realignment,
    realignment_is_theirs,
    reverse_expands,
)
from shoal.lab.records import Shifts
from shoal.lab.study import Claim, Placed


def all_claims(models: Sequence[Shifts], geometries: Sequence[Placed]) -> tuple[Claim, ...]:
    """Answer every claim.

    Args:
        models: The shift experiments of each model.
        geometries: The geometry of each model on some tasks.
    """
    chosen = helped(models, geometries)
    return (
        no_gain_in_distribution(models),
        gain_under_shift(models),
        beyond_controls(models),
        realignment(chosen),
        realignment_is_theirs(chosen),
        amplifiers(chosen),
        reverse_expands(models, geometries),
        monotone(chosen),
        inverse_restores(chosen),
    )
