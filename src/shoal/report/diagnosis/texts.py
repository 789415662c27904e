"""What the models' own texts look like: variety, repetition, loops, endings, oddness."""

from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING

from shoal.diagnosis.records import FreeRuns, TextMeasures
from shoal.report.diagnosis.marks import CONTROLS, way
from shoal.report.marks import (
    WIDTH,
    Scale,
    Stroke,
    draw_dot,
    fit,
    mean_ends,
    set_rows,
    set_scale,
    set_share,
)
from shoal.report.style import ACCENT, INK, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = {
    "distinct_2": ("Distinct pairs", "different pairs of tokens / pairs"),
    "longest_repeat": ("Longest repeat", "repeated run / length"),
    "looping": ("Looping", "share that end in a loop"),
    "surprise": ("Surprise", "NLL under dense, nats per token"),
    "ended": ("Ended", "share that ended by EOS"),
    "length": ("Length", "tokens written"),
}
"""Measure -> its title and what stands at the axis."""

SHARES = {"distinct_2", "longest_repeat", "looping", "ended"}


@dataclass(frozen=True)
class Writer:
    """Whose texts are measured.

    Attributes:
        way: How they were decoded.
        name: Who wrote them.
        text: What they are like.
        stroke: How they are drawn.
        dense: Whether the dense model wrote them.
    """

    way: str
    name: str
    text: TextMeasures
    stroke: Stroke
    dense: bool = False


def writers(free: FreeRuns) -> list[Writer]:
    """The dense model once for each way to decode, then the other model, then the controls."""
    found = []
    controls = list(dict.fromkeys(r.name for r in free.runs if r.control))
    for how in dict.fromkeys(map(way, free.runs)):
        runs = [r for r in free.runs if way(r) == how]
        found.append(Writer(how, "dense", runs[0].dense_text, Stroke("dense", INK, "s"), True))
        for run in sorted(runs, key=lambda r: r.control):
            colour = CONTROLS[controls.index(run.name) % len(CONTROLS)] if run.control else ACCENT
            stroke = Stroke(run.name, colour, "o" if run.control else "D")
            found.append(Writer(how, run.name, run.other_text, stroke))
    return found


def texts_figure(free: FreeRuns) -> "Figure | None":
    """Draw measures of the texts as dots, a row for each writer.

    Returns:
        None where there is no run.
    """
    found = writers(free)
    means = {name: [getattr(w.text, name) for w in found] for name in MEASURES}
    shown = [n for n, own in means.items() if any(m and not isnan(m.value) for m in own)]
    columns = min(3, len(shown))
    if not columns:
        return None
    lines = -(-len(shown) // columns)
    labels, rows = _rows(found)
    with styled():
        figure = new_figure(WIDTH, lines * (0.95 + 0.21 * len(labels)))
        for place, name in enumerate(shown):
            axes = figure.add_subplot(lines, columns, place + 1)
            scale = Scale(0, 1, False) if name in SHARES else fit(mean_ends(means[name]), log=False)
            for row, writer, mean in zip(rows, found, means[name], strict=True):
                draw_dot(axes, mean, row, scale, writer.stroke, hollow=writer.dense)
            set_rows(axes, labels)
            if name in SHARES:
                set_share(axes)
            else:
                set_scale(axes, scale, "x")
            if place % columns:
                axes.set_yticklabels([])
            else:
                for row, label in enumerate(axes.get_yticklabels()):
                    label.set_fontweight("normal" if row in rows else "bold")
            title, what = MEASURES[name]
            axes.set_title(title)
            axes.set_xlabel(what, fontsize=8)
    return figure


def _rows(found: list[Writer]) -> tuple[list[str], list[int]]:
    """Labels of all rows, with a heading for each way to decode, and the rows of the writers."""
    labels: list[str] = []
    rows = []
    last = None
    for writer in found:
        if writer.way != last:
            labels.append(writer.way)
            last = writer.way
        rows.append(len(labels))
        labels.append(writer.name)
    return labels, rows
