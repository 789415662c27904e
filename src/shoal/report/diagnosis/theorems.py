"""Exact quantities against the leading terms of the three theorems, site by site."""

from math import isfinite
from statistics import median
from typing import TYPE_CHECKING

from shoal.diagnosis.records import Layerwise
from shoal.report.diagnosis.layers import by_kind, local
from shoal.report.diagnosis.marks import KINDS
from shoal.report.marks import WIDTH, Scale, fit, set_scale
from shoal.report.style import INK, light_grid, new_figure, styled
from shoal.report.words import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAIRS = (
    ("hidden_gap", "hidden_estimate", "T1, hidden states", "1 − cos h", "½ |Δh⊥|² / |h|²"),
    ("logit_gap", "logit_estimate", "T1, logits", "1 − cos z", "½ |Δz⊥|² / |z|²"),
    ("probability_gap", "probability_estimate", "T2", "1 − cos p", "½ Varᵣ(Δz) / T²"),
    ("kl", "kl_estimate", "T3", "KL(p || q), nats", "½ Varₚ(Δz) / T²"),
)
"""Exact quantity, leading term, title, and what stands at the axes."""


def theorems_figure(layerwise: Layerwise) -> "Figure | None":
    """Draw the exact quantity of every site over its leading term, with the diagonal.

    Returns:
        None where no site has both.
    """
    kinds = by_kind(layerwise.sites)
    dots = {
        pair[0]: {
            kind: [
                (local(r)[pair[1]].value, local(r)[pair[0]].value)
                for r in rows
                if pair[0] in local(r) and pair[1] in local(r)
            ]
            for kind, rows in kinds.items()
        }
        for pair in PAIRS
    }
    shown = [pair for pair in PAIRS if any(dots[pair[0]].values())]
    if not shown:
        return None
    columns = min(2, len(shown))
    lines = -(-len(shown) // columns)
    with styled():
        figure = new_figure(WIDTH * (0.9 if columns == 2 else 0.5), 3.3 * lines + 0.3)
        for place, pair in enumerate(shown):
            _panel(figure.add_subplot(lines, columns, place + 1), pair, dots[pair[0]])
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower left", ncols=4, fontsize=8)
    return figure


Dots = dict[str, list[tuple[float, float]]]


def _panel(axes: "Axes", pair: tuple[str, ...], dots: Dots) -> None:
    _, _, title, exact, estimate = pair
    every = [dot for own in dots.values() for dot in own]
    scale = fit((v for dot in every for v in dot), log=True)
    axes.plot(
        [scale.low, scale.high],
        [scale.low, scale.high],
        color=INK,
        linewidth=1,
        linestyle=(0, (4, 3)),
        label="equal",
    )
    for kind, own in dots.items():
        _scatter(axes, own, scale, kind)
    for axis in ("x", "y"):
        set_scale(axes, scale, axis, small=True)
    axes.set_aspect("equal")
    ratios = [e / x for e, x in every if isfinite(e) and isfinite(x) and x > 0]
    told = f": median ratio {number(median(ratios))}" if ratios else ""
    axes.set_title(f"{title}{told}")
    axes.set_xlabel(f"leading term, {estimate}")
    axes.set_ylabel(f"exact, {exact}")
    light_grid(axes, "both")


def _scatter(axes: "Axes", dots: list[tuple[float, float]], scale: Scale, kind: str) -> None:
    stroke = KINDS[kind]
    axes.scatter(
        scale.places(e for e, _ in dots),
        scale.places(x for _, x in dots),
        s=20,
        color=stroke.colour,
        marker=stroke.marker,
        alpha=0.65,
        linewidths=0,
        label=stroke.label,
    )
