"""Where softmax amplifies a change of logits, over temperatures."""

from collections.abc import Sequence
from math import nan
from typing import TYPE_CHECKING

from shoal.diagnosis.records import Amplification
from shoal.report.marks import GREEN, WIDTH, Scale, Stroke, edge_note, fit, plain_number, set_scale
from shoal.report.style import ACCENT, INK, MAIN, light_grid, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINES = {
    "measured": Stroke("measured, median over positions", ACCENT, "D"),
    "ratio": Stroke("measured, ratio of the means", GREEN, "o"),
    "predicted": Stroke("predicted for an isotropic change", MAIN, "s"),
}
SHARES = {
    "amplified": Stroke("measured", ACCENT, "D"),
    "predicted_amplified": Stroke("predicted", MAIN, "s"),
}


def softmax_figure(found: Sequence[Amplification]) -> "Figure | None":
    """Draw (1 - cos p) / (1 - cos z), measured and predicted, and where it is above 1.

    Returns:
        None where no temperature was looked at.
    """
    if not found:
        return None
    rows = sorted(found, key=lambda a: a.temperature)
    values = [getattr(a, name) for a in rows for name in LINES]
    scale = fit([1.0, *values])
    with styled():
        figure = new_figure(WIDTH, 3.5)
        left, right = (figure.add_subplot(1, 2, i) for i in (1, 2))
        level = scale.place(1.0)
        neither = "1: neither amplified nor damped"
        left.axhline(level, color=INK, linewidth=1, linestyle=(0, (4, 3)), label=neither)
        _lines(left, rows, LINES, scale)
        set_scale(left, scale)
        left.set_title("Amplification by softmax")
        left.set_ylabel("(1 − cos p) / (1 − cos z)" + edge_note(scale, values))
        _lines(right, rows, SHARES, Scale(0, 1, False))
        right.set_ylim(0, 1.03)
        right.set_title("Where it is above 1")
        right.set_ylabel("share of positions")
        for axes in (left, right):
            _temperatures(axes, [a.temperature for a in rows])
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower left", ncols=2, fontsize=8)
    return figure


def _lines(
    axes: "Axes", rows: Sequence[Amplification], strokes: dict[str, Stroke], scale: Scale
) -> None:
    for name, stroke in strokes.items():
        values = [getattr(a, name) for a in rows]
        axes.plot(
            [a.temperature for a in rows],
            [nan if v is None else scale.place(v) for v in values],
            color=stroke.colour,
            marker=stroke.marker,
            markersize=5,
            linewidth=1.5,
            label=stroke.label,
        )


def _temperatures(axes: "Axes", temperatures: Sequence[float]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(list(temperatures)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value)))
    axes.set_xlim(temperatures[0] / 1.15, temperatures[-1] * 1.15)
    axes.set_xlabel("temperature")
    light_grid(axes)
