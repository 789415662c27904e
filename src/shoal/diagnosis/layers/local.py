"""What each site does where it stands: the state that it leaves against the state without it."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from shoal.core.mask import Site
from shoal.diagnosis.layers.effects import Pair, compare_pairs, joined, normed, raw
from shoal.diagnosis.layers.replaced import Replacing
from shoal.diagnosis.layers.sites import Sites
from shoal.diagnosis.layers.states import states_at_rows
from shoal.diagnosis.passages import Progress, check_finite
from shoal.diagnosis.spaces import Columns, Look, Rows
from shoal.models.batch import TokenBatch
from shoal.models.dense import DenseModel
from shoal.models.head import Head

RAW = frozenset(
    {
        "hidden_gap",
        "hidden_parallel",
        "hidden_orthogonal",
        "hidden_estimate",
        "logit_gap",
        "logit_parallel",
        "logit_orthogonal",
        "logit_estimate",
        "logit_rms",
        "attenuation",
        "probability_gap",
        "probability_estimate",
        "kl",
        "kl_estimate",
        "amplification",
        "amplification_predicted",
    }
)
"""Quantities that are also taken without the final norm: those of the theorems."""

VARIANTS = 2
"""Behind the final norm, and without it."""


@dataclass(frozen=True)
class Around:
    """States around every site of a micro-batch, at its rows.

    Attributes:
        states: Name -> state [R, d].
        pairs: Site -> the states with the dense model's site, and without it or with another.
    """

    states: Mapping[Hashable, Tensor]
    pairs: Mapping[Site, Pair]

    @property
    def width(self) -> int:
        """Size of the states."""
        return next(iter(self.states.values())).shape[-1]


def around_dropped(dense: DenseModel, sites: Sites, tokens: TokenBatch) -> Around:
    """What enters each site stands for the state without it.

    Raises:
        UnsupportedModelError: If blocks are not run once each.
    """
    ends = {site: sites.ends(site) for site in sites.sites}
    wanted = {state for pair in ends.values() for state in pair}
    states: dict[Hashable, Tensor] = {}
    states.update(states_at_rows(dense, wanted, tokens).items())
    return Around(states, {site: (end, entry) for site, (entry, end) in ends.items()})


def around_replaced(replacing: Replacing, sites: Sites, tokens: TokenBatch) -> Around:
    """What the other model's site makes of the dense model's state stands for it."""
    states: dict[Hashable, Tensor] = {}
    pairs: dict[Site, Pair] = {}
    for swap in replacing.swaps(tokens):
        pairs[swap.site] = sites.ends(swap.site)[1], swap.site
        for name, state in zip(pairs[swap.site], (swap.dense, swap.other), strict=True):
            states[name] = state.reshape(-1, state.shape[-1])[tokens.rows]
    return Around(states, pairs)


def compare_around(
    around: Around, head: Head | None, look: Look, on_step: Progress | None
) -> Iterator[tuple[str, Site, Columns]]:
    """Compare the states around every site.

    Args:
        around: The states.
        head: The model's head; None compares in the hidden space alone.
        look: What is looked at.
        on_step: Hears of comparisons: positions times variants.

    Yields:
        `normed` or `raw`, the site, and a value per row.

    Raises:
        NotFiniteError: If states are not finite.
    """
    forms: dict[str, Callable[[Tensor], Rows]] = {"raw": Rows}
    if head is not None:
        forms = {"normed": lambda x: normed(head, x), "raw": lambda x: raw(head, x)}
    for variant, form in forms.items():
        rows = {name: form(state) for name, state in around.states.items()}
        inner = look if variant == "normed" else Look(look.temperature)
        parts: dict[int, list[Columns]] = {}
        for i, here, found in compare_pairs(rows, list(around.pairs.values()), inner):
            parts.setdefault(i, []).append(found)
            if on_step is not None:
                on_step((here.stop - here.start) * VARIANTS // len(forms))
        for i, site in enumerate(around.pairs):
            columns = joined(parts[i])
            if variant == "normed":
                check_finite(columns)
            else:
                columns = {k: v for k, v in columns.items() if k in RAW}
            yield variant, site, columns
