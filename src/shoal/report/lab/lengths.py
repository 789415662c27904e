"""Error by what a model has seen of a function, beside what other learners reach."""

from collections.abc import Sequence
from math import log
from typing import TYPE_CHECKING

from shoal.lab.records import Shift, Shifts
from shoal.report.lab.marks import BEST, DENSE, panel_legend
from shoal.report.lab.reading import in_order, trained_shift
from shoal.report.marks import (
    GREEN,
    GREY,
    PURPLE,
    WIDTH,
    Scale,
    Stroke,
    curve_ends,
    draw_curve,
    fit,
    literal,
    set_scale,
)
from shoal.report.style import GRID, light_grid, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEARNERS = {
    "zero": (Stroke("predicting zero", GREY), (0, (1, 1.5)), 1.3),
    "least_squares": (Stroke("least squares", GREEN), "-", 1.1),
    "ridge": (Stroke("ridge", PURPLE), (0, (4, 2)), 1.3),
    "clipped": (Stroke("least squares, cut off at training's bound", GREEN), (0, (1, 1.3)), 1.3),
}
"""Reference learner -> how it is drawn."""

OWN = ("dense", "best", "zero")
"""Curves that the axis is fitted to."""


def shown_tasks(model: Shifts) -> list[Shift]:
    """Training, the wider task nearest to twice its width, and the task farthest from it."""
    trained = trained_shift(model)
    if trained is None:
        return in_order(model.shifts)[:3]
    rest = [s for s in in_order(model.shifts) if not s.in_distribution]
    wider = [s for s in rest if s.sigma > trained.sigma]
    near = sorted(wider, key=lambda s: abs(log(s.sigma / (2 * trained.sigma))))[:1]
    far = sorted(rest, key=lambda s: -abs(log(s.sigma / trained.sigma)))
    others = [*near, *(s for s in far if s not in near)][:2]
    return [trained, *in_order(others)]


def lengths_figure(models: Sequence[Shifts]) -> "Figure | None":
    """Draw the squared error over the number of points seen, a row of panels for each model.

    Returns:
        None where no task has curves.
    """
    shown = [(m, [s for s in shown_tasks(m) if s.lengths.get("dense")]) for m in models]
    shown = [(m, tasks) for m, tasks in shown if tasks]
    if not shown:
        return None
    columns = max(len(tasks) for _, tasks in shown)
    width = WIDTH if columns > 1 else 0.62 * WIDTH
    with styled():
        figure = new_figure(width, 1.75 * len(shown) + 0.7)
        drawn = []
        for row, (model, tasks) in enumerate(shown):
            for column, shift in enumerate(tasks):
                axes = figure.add_subplot(len(shown), columns, row * columns + column + 1)
                _panel(axes, model, shift)
                named = "training" if shift.in_distribution else "shifted"
                axes.set_title(f"{literal(shift.task)} ({named})", fontsize=9)
                if column == 0:
                    axes.set_ylabel(f"{literal(model.model)}\nsquared error", fontsize=8)
                if row == len(shown) - 1:
                    axes.set_xlabel("points seen", fontsize=8)
                drawn.append(axes)
        panel_legend(figure, drawn, 3)
    return figure


def _panel(axes: "Axes", model: Shifts, shift: Shift) -> None:
    from matplotlib.ticker import MaxNLocator

    scale = _scale(shift)
    strokes = {"dense": (DENSE, "-", 1.8), "best": (BEST, (0, (5, 1.5)), 1.8)}
    for name, (stroke, style, width) in (LEARNERS | strokes).items():
        curve = shift.lengths.get(name)
        if curve is None or not curve.steps:
            continue
        seen = curve.model_copy(update={"steps": tuple(step - 1 for step in curve.steps)})
        draw_curve(axes, seen, scale, stroke, style, width)
    skip = model.settings.get("skip", 0)
    if skip:
        axes.axvspan(-0.5, skip - 0.5, color=GRID, linewidth=0, zorder=0, label="not counted")
    set_scale(axes, scale, small=True)
    axes.set_xlim(left=-0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6, min_n_ticks=1))
    axes.tick_params(labelsize=8)
    light_grid(axes)


def _scale(shift: Shift) -> Scale:
    """An axis for what the models and zero reach; references that go lower stand at its edge."""
    return fit(curve_ends(shift.lengths[n] for n in OWN if n in shift.lengths), log=True)
