"""Gain of task-aware pruning over the width of the functions."""

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING

from shoal.core.records import Mean
from shoal.lab.records import Shift, Shifts
from shoal.report.lab.marks import (
    below_note,
    gain_axis,
    gain_scale,
    model_strokes,
    panel_legend,
    panels,
    sigma_axis,
    sigma_label,
)
from shoal.report.lab.reading import by_range, gain_of, in_order, masked, mean_gains, trained_shift
from shoal.report.marks import Scale, Stroke, draw_band, literal, mean_ends
from shoal.report.style import INK, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GAIN = "gain: share of the dense loss saved"

BESIDE = 0.022
"""How far apart models are drawn on one sigma, relative."""


def gain_figure(models: Sequence[Shifts]) -> "Figure | None":
    """Draw the gain of BEST by sigma for each model, and the mean of models trained alike.

    Returns:
        None where nothing was measured.
    """
    groups = by_range([m for m in models if any(masked(s, "best") for s in m.shifts)])
    if not groups:
        return None
    strokes = model_strokes([m.model for own in groups.values() for m in own])
    with styled():
        figure, drawn = panels(len(groups), 2, 3.2, extra=0.5 + 0.2 * (len(models) // 3))
        for place, (axes, (name, own)) in enumerate(zip(drawn, groups.items(), strict=True)):
            shifts = [s for m in own for s in m.shifts]
            means = mean_gains(own) if len(own) > 1 else {}
            gains = [gain_of(s, "best") for s in shifts]
            scale = gain_scale(mean_ends([*gains, *(m for _, m in means.values())]))
            if means:
                _mean_line(axes, means, scale)
            for i, model in enumerate(own):
                # Beside each other, since intervals on one spot could not be told apart.
                beside = 1 + BESIDE * (i - (len(own) - 1) / 2)
                draw_gains(axes, model.shifts, scale, strokes[model.model], beside)
            trained = trained_shift(own[0])
            sigma_axis(axes, [s.sigma for s in shifts], trained.sigma if trained else None)
            gain_axis(axes, scale)
            axes.set_title(literal(f"trained on {name}"))
            axes.set_xlabel(sigma_label(shifts))
            note = below_note(scale, [g.value for g in gains if g is not None])
            axes.set_ylabel(GAIN + note if place % 2 == 0 else note.strip())
        panel_legend(figure, drawn, 3)
    return figure


def draw_gains(
    axes: "Axes", shifts: Sequence[Shift], scale: Scale, stroke: Stroke, beside: float = 1.0
) -> None:
    """Draw gains of BEST with their intervals, joined by a line; hollow where nothing is removed.

    Args:
        axes: Where.
        shifts: The tasks of a model.
        scale: Of the gains.
        stroke: How.
        beside: Factor by which sigma is moved aside.
    """
    found = [(s, m) for s in in_order(shifts) if (m := masked(s, "best")) is not None]
    x = [s.sigma * beside for s, _ in found]
    y = scale.places(m.test.gain.value for _, m in found)
    axes.plot(x, y, color=stroke.colour, linewidth=1.1, alpha=0.75, zorder=3)
    for at, value, (_, mask) in zip(x, y, found, strict=True):
        low, high = scale.place(mask.test.gain.low), scale.place(mask.test.gain.high)
        if isfinite(low) and isfinite(high):
            axes.plot([at, at], [low, high], color=stroke.colour, linewidth=1.3, zorder=3)
        if isfinite(value):
            face = stroke.colour if mask.mask else "white"
            dot = axes.scatter([at], [value], s=24, marker=stroke.marker, zorder=4)
            dot.set(facecolors=face, edgecolors=stroke.colour, linewidths=1.1)
    axes.plot(
        [],
        [],
        color=stroke.colour,
        marker=stroke.marker,
        markersize=4.5,
        linewidth=1.1,
        label=literal(stroke.label),
    )


def _mean_line(axes: "Axes", means: dict[str, tuple[Shift, Mean]], scale: Scale) -> None:
    found = sorted(means.values(), key=lambda pair: (pair[0].sigma, not pair[0].in_distribution))
    ends = (
        [m.value for _, m in found],
        [m.low for _, m in found],
        [m.high for _, m in found],
    )
    stroke = Stroke("mean over models, 95% t-interval", INK)
    draw_band(axes, [s.sigma for s, _ in found], ends, scale, stroke, width=2.0)
