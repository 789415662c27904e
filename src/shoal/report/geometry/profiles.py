"""Profiles by depth on both tasks, and how far they lie from the ID profile."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shoal.geometry.records import Geometry, Profile
from shoal.report.geometry.marks import (
    KINDS,
    LINES,
    SIDES,
    log_ratio,
    profile_ends,
    shade,
    whole_ticks,
)
from shoal.report.marks import (
    WIDTH,
    Scale,
    draw_band,
    edge_note,
    fit,
    fit_signed,
    set_scale,
)
from shoal.report.style import INK, light_grid, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ALL = ("norm", "distance", "cosine")
LAST = ("last_norm", "last_distance", "last_cosine")

LABELS = {"norm": "mean ‖h‖", "distance": "mean ‖hᵢ − hⱼ‖", "cosine": "mean 1 − cosine"}


def profiles_figure(found: Geometry) -> "Figure | None":
    """Draw norm, distance and cosine distance over all positions.

    Returns:
        None where nothing was profiled.
    """
    return _figure(found, ALL)


def last_figure(found: Geometry) -> "Figure | None":
    """Draw the same of the last positions; distances are between sequences.

    Returns:
        None where nothing was profiled.
    """
    return _figure(found, LAST)


def known_sides(found: Geometry) -> dict[str, Profile]:
    """Profiles in the order in which they are told."""
    return {name: found.profiles[name] for name in SIDES if name in found.profiles}


def _figure(found: Geometry, kinds: Sequence[str]) -> "Figure | None":
    sides = known_sides(found)
    shown = [k for k in kinds if any(getattr(p, k) for p in sides.values())]
    if not shown:
        return None
    ratios = {kind: _ratios(sides, kind) for kind in shown}
    compared = any(any(v == v for v in r) for of in ratios.values() for r in of.values())
    # Panels keep their width where some are missing.
    columns = len(kinds)
    with styled():
        figure = new_figure(WIDTH, 5.0 if compared else 3.3)
        grid = figure.add_gridspec(1 + compared, columns, height_ratios=[1.6, 1][: 1 + compared])
        common = fit_signed(v for of in ratios.values() for r in of.values() for v in r)
        for column, kind in enumerate(shown):
            axes = figure.add_subplot(grid[0, column])
            _values(axes, sides, kind)
            _depths(axes, found)
            axes.set_title(KINDS[kind], fontsize=9.5)
            if column == 0:
                handles, labels = axes.get_legend_handles_labels()
            if compared:
                below = figure.add_subplot(grid[1, column])
                _draw_ratios(below, ratios[kind], common)
                _depths(below, found)
                below.set_ylabel("" if column else "log (profile / ID profile)", fontsize=8)
                axes = below
            axes.set_xlabel("depth")
        figure.legend(handles, labels, loc="outside lower left", ncols=5, fontsize=8)
    return figure


def _ratios(sides: dict[str, Profile], kind: str) -> dict[str, list[float]]:
    if "id" not in sides:
        return {}
    base = profile_ends(sides["id"], kind)[0]
    return {
        name: [log_ratio(*pair) for pair in zip(profile_ends(p, kind)[0], base, strict=False)]
        for name, p in sides.items()
        if name != "id"
    }


def _values(axes: "Axes", sides: dict[str, Profile], kind: str) -> None:
    ends = {name: profile_ends(p, kind) for name, p in sides.items()}
    scale = fit(v for parts in ends.values() for part in parts for v in part)
    for name, parts in ends.items():
        style, width = LINES[name]
        draw_band(axes, range(len(parts[0])), parts, scale, SIDES[name], style, width)
    set_scale(axes, scale, small=True)
    note = edge_note(scale, [v for parts in ends.values() for v in parts[0]])
    axes.set_ylabel(LABELS[kind.removeprefix("last_")].replace("mean", _mean(kind)) + note)


def _mean(kind: str) -> str:
    """Distances of last positions have no interval, being over pairs of sequences."""
    return "mean" if kind in ALL or kind == "last_norm" else "mean over pairs,"


def _draw_ratios(axes: "Axes", ratios: dict[str, list[float]], scale: Scale) -> None:
    axes.axhline(0, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
    for name, values in ratios.items():
        style, width = LINES[name]
        nothing: list[float | None] = [None] * len(values)
        draw_band(
            axes, range(len(values)), (values, nothing, nothing), scale, SIDES[name], style, width
        )
    set_scale(axes, scale)


def _depths(axes: "Axes", found: Geometry) -> None:
    shade(axes, found.mask, 0.0, "removed by the plan")
    whole_ticks(axes, -0.02 * found.depth, 1.02 * found.depth)
    light_grid(axes)
