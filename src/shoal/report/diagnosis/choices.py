"""Multiple choice: what changes among the options, and over the whole vocabulary."""

from collections.abc import Sequence
from math import nan
from typing import TYPE_CHECKING

from shoal.core.records import Mean
from shoal.diagnosis.records import Options
from shoal.report.marks import (
    GREEN,
    WIDTH,
    Scale,
    Stroke,
    draw_dot,
    edge_note,
    fit,
    mean_ends,
    set_rows,
    set_scale,
    set_share,
)
from shoal.report.style import ACCENT, INK, MAIN, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INSIDE = Stroke("among the options", GREEN, "o")
WHOLE = Stroke("whole vocabulary", ACCENT, "D")


def floor(options: Options) -> Mean | None:
    """The least that the divergence over the vocabulary can be, given that among the options."""
    return options.vocabulary.get("subspace_floor", options.inside.get("subspace_floor"))


def choice_label(options: Options) -> str:
    """Name of a task and its scoring."""
    return f"{options.task}, {options.scoring}"


def choices_figure(choices: Sequence[Options]) -> "Figure | None":
    """Draw divergences inside and outside of the options, what stays chosen, and the accuracy.

    Returns:
        None where there is no task.
    """
    if not choices:
        return None
    with styled():
        figure = new_figure(WIDTH, 1.75 + 0.3 * len(choices))
        grid = figure.add_gridspec(1, 3, width_ratios=[1.5, 1, 1])
        left, middle, right = (figure.add_subplot(grid[0, i]) for i in range(3))
        _divergences(left, choices)
        dense, other = Stroke("dense", INK, "s"), Stroke("other", MAIN, "o")
        for row, one in enumerate(choices):
            share = Scale(0, 1, False)
            draw_dot(middle, one.kept, row, share, other)
            draw_dot(right, one.accuracy_dense, row - 0.13, share, dense, hollow=True)
            draw_dot(right, one.accuracy_other, row + 0.13, share, other)
        for axes, title, what in (
            (middle, "Same option chosen", "share of items"),
            (right, "Accuracy", "share right: □ dense, ● other"),
        ):
            set_rows(axes, [""] * len(choices))
            set_share(axes)
            axes.set_title(title)
            axes.set_xlabel(what, fontsize=8)
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower left", ncols=3, fontsize=8)
    return figure


def _divergences(axes: "Axes", choices: Sequence[Options]) -> None:
    inside = [o.inside.get("subspace_kl") for o in choices]
    whole = [o.vocabulary.get("kl") for o in choices]
    floors = [floor(o) for o in choices]
    scale = fit(mean_ends([*inside, *whole, *floors]))
    set_scale(axes, scale, "x", small=True)
    for row in range(len(choices)):
        draw_dot(axes, whole[row], row, scale, WHOLE)
        draw_dot(axes, inside[row], row, scale, INSIDE)
    known = [(nan if m is None else scale.place(m.value), row) for row, m in enumerate(floors)]
    x, y = [v for v, _ in known], [row for _, row in known]
    axes.scatter(x, y, s=90, marker="|", color=INK, linewidths=1.5, label="floor: p(C) × KL in C")
    for stroke in (INSIDE, WHOLE):
        axes.scatter([], [], s=34, marker=stroke.marker, color=stroke.colour, label=stroke.label)
    set_rows(axes, [choice_label(o) for o in choices])
    axes.set_title("KL(dense || other)")
    note = edge_note(scale, [m.value for m in [*inside, *whole, *floors] if m is not None], "x")
    axes.set_xlabel(f"nats{note}", fontsize=8)
