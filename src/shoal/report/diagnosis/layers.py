"""Each site alone: what its removal changes right behind it, and at the model's end."""

from collections.abc import Mapping, Sequence
from math import isfinite, nan
from typing import TYPE_CHECKING

from shoal.core.mask import Site
from shoal.core.records import Mean
from shoal.diagnosis.records import Layerwise, SiteRow
from shoal.report.diagnosis.marks import GAPS, KINDS
from shoal.report.marks import (
    GREY,
    WIDTH,
    Scale,
    Stroke,
    draw_band,
    edge_note,
    fit,
    mean_ends,
    set_scale,
)
from shoal.report.style import FAINT, INK, light_grid, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLES = {"block": "Blocks", "attn": "Attention", "mlp": "MLP"}


def local(row: SiteRow) -> Mapping[str, Mean]:
    """Quantities at a site, behind the final norm where that can be had."""
    return row.normed or row.raw


def by_kind(rows: Sequence[SiteRow]) -> dict[str, list[SiteRow]]:
    """Rows of blocks, attentions and MLPs, each in order of depth; kinds without rows left out."""
    found: dict[str, list[SiteRow]] = {}
    for kind in KINDS:
        own = [r for r in rows if Site.parse(r.site).part == kind]
        if own:
            found[kind] = sorted(own, key=lambda r: Site.parse(r.site).layer)
    return found


def layers_figure(layerwise: Layerwise) -> "Figure | None":
    """Draw 1 - cosine in each space behind each site, and the attenuation by the head.

    Attention and MLP have a panel each; blocks have one where there are no sub-layers.

    Returns:
        None where nothing is known at any site.
    """
    kinds = by_kind([r for r in layerwise.sites if local(r)])
    if len(kinds) > 1:
        kinds.pop("block", None)
    if not kinds:
        return None
    rows = [r for part in kinds.values() for r in part]
    gaps = [name for name in GAPS if any(name in local(r) for r in rows)]
    found = mean_ends(local(r).get(name) for r in rows for name in gaps)
    scale = fit(found, log=True)
    note = edge_note(scale, [local(r)[n].value for r in rows for n in gaps if n in local(r)])
    attenuated = any("attenuation" in local(r) for r in rows)
    with styled():
        figure = new_figure(WIDTH, 4.9 if attenuated else 3.5)
        grid = figure.add_gridspec(
            1 + attenuated, len(kinds), height_ratios=[1.0, 0.45] if attenuated else [1.0]
        )
        for column, (kind, own) in enumerate(kinds.items()):
            axes = figure.add_subplot(grid[0, column])
            for name in gaps:
                _line(axes, own, name, scale, GAPS[name])
            set_scale(axes, scale)
            _depth(axes, rows, own)
            axes.set_title(f"{TITLES[kind]} {layerwise.mode} alone, at the site")
            axes.set_ylabel("" if column else f"1 − cosine{note}")
            if column == 0:
                handles, labels = axes.get_legend_handles_labels()
            if attenuated:
                _attenuation(figure.add_subplot(grid[1, column]), rows, own, first=column == 0)
            else:
                axes.set_xlabel("block")
        figure.legend(handles, labels, loc="outside lower left", ncols=5, fontsize=8)
    return figure


def _line(axes: "Axes", rows: Sequence[SiteRow], name: str, scale: Scale, stroke: Stroke) -> None:
    """A quantity over depth; sites that could not be run leave a gap."""
    known = {Site.parse(r.site).layer: local(r).get(name) for r in rows}
    x = range(min(known), max(known) + 1)
    means = [known.get(i) for i in x]
    ends = (
        [nan if m is None else m.value for m in means],
        [None if m is None else m.low for m in means],
        [None if m is None else m.high for m in means],
    )
    draw_band(axes, x, ends, scale, stroke, marker=stroke.marker, width=1.3)


def _attenuation(
    axes: "Axes", all_rows: Sequence[SiteRow], rows: Sequence[SiteRow], *, first: bool
) -> None:
    means = [local(r).get("attenuation") for r in all_rows]
    scale = fit([1.0, *mean_ends(means)])
    axes.axhline(1, color=INK, linewidth=1, linestyle=(0, (4, 3)))
    _line(axes, rows, "attenuation", scale, Stroke("attenuation", GREY, "."))
    set_scale(axes, scale)
    _depth(axes, all_rows, rows)
    axes.set_xlabel("block")
    axes.set_ylabel("attenuation\nby the head" if first else "")


def _depth(axes: "Axes", all_rows: Sequence[SiteRow], rows: Sequence[SiteRow]) -> None:
    """Blocks along the axis, what the plan removes shaded."""
    from matplotlib.ticker import MaxNLocator

    removed = [Site.parse(r.site).layer for r in rows if r.removed]
    for i, layer in enumerate(removed):
        label = "removed by the plan" if i == 0 else None
        axes.axvspan(layer - 0.5, layer + 0.5, color=FAINT, alpha=0.28, linewidth=0, label=label)
    layers = [Site.parse(r.site).layer for r in all_rows]
    axes.set_xlim(min(layers) - 0.7, max(layers) + 0.7)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10, min_n_ticks=1))
    light_grid(axes)


def ends_figure(layerwise: Layerwise) -> "Figure | None":
    """Draw the divergence at the model's end when one site is gone and the others are in place.

    Returns:
        None where no site was run to the end.
    """
    kinds = by_kind([r for r in layerwise.sites if "kl" in r.final])
    if not kinds:
        return None
    rows = [r for part in kinds.values() for r in part]
    scale = fit(mean_ends(r.final["kl"] for r in rows))
    note = edge_note(scale, [r.final["kl"].value for r in rows])
    beside = {"block": 0.0, "attn": -0.22, "mlp": 0.22}
    with styled():
        figure = new_figure(WIDTH, 3.7)
        axes = figure.add_subplot()
        for kind, own in kinds.items():
            stroke = KINDS[kind]
            x = [Site.parse(r.site).layer + (beside[kind] if len(kinds) > 1 else 0) for r in own]
            _dots(axes, x, own, scale, stroke)
        ringed = [
            (x, r)
            for kind, own in kinds.items()
            for r in own
            if r.removed
            for x in [Site.parse(r.site).layer + (beside[kind] if len(kinds) > 1 else 0)]
        ]
        if ringed:
            y = scale.places(r.final["kl"].value for _, r in ringed)
            ring = axes.scatter([x for x, _ in ringed], y, s=105, label="removed by the plan")
            ring.set(facecolors="none", edgecolors=INK, linewidths=1.1)
        set_scale(axes, scale)
        layers = [Site.parse(r.site).layer for r in rows]
        from matplotlib.ticker import MaxNLocator

        axes.set_xlim(min(layers) - 0.7, max(layers) + 0.7)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=15, min_n_ticks=1))
        axes.set_title(f"One site {layerwise.mode}, all others in place: effect at the model's end")
        axes.set_xlabel("block")
        axes.set_ylabel("KL(dense || changed), nats" + note)
        light_grid(axes)
        figure.legend(loc="outside lower left", ncols=4, fontsize=8)
    return figure


def _dots(
    axes: "Axes", x: Sequence[float], rows: Sequence[SiteRow], scale: Scale, stroke: Stroke
) -> None:
    means = [r.final["kl"] for r in rows]
    y, low, high = (
        scale.places(part)
        for part in ([m.value for m in means], [m.low for m in means], [m.high for m in means])
    )
    axes.plot(x, y, color=stroke.colour, linewidth=0.8, alpha=0.35, zorder=1)
    known = [i for i, ends in enumerate(zip(low, high, strict=True)) if all(map(isfinite, ends))]
    axes.vlines(
        [x[i] for i in known],
        [low[i] for i in known],
        [high[i] for i in known],
        color=stroke.colour,
        linewidth=1.1,
        zorder=2,
    )
    axes.scatter(
        x, y, s=16, color=stroke.colour, marker=stroke.marker, label=stroke.label, zorder=3
    )
