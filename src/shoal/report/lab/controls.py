"""Gain of BEST over the width of the functions, beside what controls gain."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from shoal.core.records import Mean
from shoal.lab.records import Shift, Shifts
from shoal.report.lab.gains import GAIN, draw_gains
from shoal.report.lab.marks import (
    BEST,
    RANDOM_BEST,
    RESCALED,
    SINGLE,
    below_note,
    gain_axis,
    gain_scale,
    panel_legend,
    panels,
    sigma_axis,
    sigma_label,
)
from shoal.report.lab.reading import (
    gain_of,
    in_order,
    masked,
    random_range,
    rescaled_gain,
    trained_shift,
)
from shoal.report.marks import GREY, Scale, Stroke, literal, mean_ends
from shoal.report.style import FAINT, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CONTROLS: Mapping[Stroke, Callable[[Shift], Mean | None]] = {
    SINGLE: lambda shift: gain_of(shift, "single"),
    RANDOM_BEST: lambda shift: gain_of(shift, "random_best"),
    RESCALED: rescaled_gain,
}
"""How a control is drawn -> its gain on a task."""

Spread = tuple[float, float, float]


def controls_figure(models: Sequence[Shifts]) -> "Figure | None":
    """Draw the gain of BEST by sigma beside that of the controls, a panel for each model.

    Returns:
        None where nothing was measured.
    """
    shown = [m for m in models if any(masked(s, "best") for s in m.shifts)]
    if not shown:
        return None
    with styled():
        figure, drawn = panels(len(shown), 2, 2.75, extra=0.75)
        for place, (axes, model) in enumerate(zip(drawn, shown, strict=True)):
            note = _panel(axes, model)
            axes.set_ylabel((GAIN if place % 2 == 0 else "") + note, fontsize=8)
        panel_legend(figure, drawn, 3)
    return figure


def _panel(axes: "Axes", model: Shifts) -> str:
    """Draw one model; what to say of its axis."""
    shifts = in_order(model.shifts)
    lines = {stroke: [control(s) for s in shifts] for stroke, control in CONTROLS.items()}
    spreads = [(s, spread) for s in shifts if (spread := random_range(s)) is not None]
    own = mean_ends(gain_of(s, "best") for s in shifts)
    others = [m.value for line in lines.values() for m in line if m is not None]
    ends = [end for _, spread in spreads for end in spread]
    # The axis is cut off below: random masks may lose a hundred times as much as there is to gain.
    scale = gain_scale([*own, *others, *ends])
    _random(axes, spreads, scale)
    for stroke, line in lines.items():
        _line(axes, shifts, line, scale, stroke)
    draw_gains(axes, shifts, scale, BEST)
    trained = trained_shift(model)
    sigma_axis(axes, [s.sigma for s in shifts], trained.sigma if trained else None)
    gain_axis(axes, scale)
    axes.set_title(literal(model.model))
    axes.set_xlabel(sigma_label(shifts), fontsize=8)
    return below_note(scale, [*own, *others, *ends])


def _line(
    axes: "Axes",
    shifts: Sequence[Shift],
    means: Sequence[Mean | None],
    scale: Scale,
    stroke: Stroke,
) -> None:
    known = [(s.sigma, m.value) for s, m in zip(shifts, means, strict=True) if m is not None]
    axes.plot(
        [x for x, _ in known],
        scale.places(y for _, y in known),
        color=stroke.colour,
        marker=stroke.marker,
        markersize=3.8,
        linewidth=1.0,
        label=stroke.label,
        zorder=2,
    )


def _random(axes: "Axes", spreads: Sequence[tuple[Shift, Spread]], scale: Scale) -> None:
    """A bar from the least to the largest gain of the random masks, with a line at the median."""
    if not spreads:
        return
    x = [shift.sigma for shift, _ in spreads]
    low, middle, high = (scale.places(spread[i] for _, spread in spreads) for i in range(3))
    axes.vlines(x, low, high, color=FAINT, alpha=0.5, linewidth=5, zorder=1)
    axes.plot([], [], color=FAINT, alpha=0.5, linewidth=5, label="random masks: least to largest")
    axes.scatter(
        x, middle, marker="_", s=50, color=GREY, linewidths=1.4, label="their median", zorder=2
    )
