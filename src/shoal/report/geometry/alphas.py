"""Losses and gaps when what some sites add is scaled, from nothing to more than it was."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from shoal.core.records import Mean
from shoal.geometry.records import Geometry, Point
from shoal.report.geometry.marks import DENSE, OTHERS, SELECTED, removed_layers
from shoal.report.geometry.points import Course, courses, dense_point, of_kind
from shoal.report.marks import (
    WIDTH,
    Stroke,
    draw_band,
    edge_note,
    fit_close,
    literal,
    set_scale,
)
from shoal.report.style import light_grid, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Read = Callable[[Point], Mean | float | None]

PANELS: tuple[tuple[str, Read], ...] = (
    ("OOD loss", lambda p: p.loss_ood),
    ("ID loss", lambda p: p.loss_id),
    ("Gap of the norms", lambda p: p.gaps.norm),
    ("Gap of the distances", lambda p: p.gaps.distance),
)

ONE = {True: "one block of the plan", False: "one other block"}


def alphas_figure(found: Geometry) -> "Figure | None":
    """Draw losses and gaps against alpha, with the dense and the pruned model as ends.

    Returns:
        None where nothing was scaled.
    """
    lines = courses(found.points)
    if not lines:
        return None
    # The selected sites are drawn last, and so lie above the others.
    lines.sort(key=lambda c: c.group == "selected")
    with styled():
        figure = new_figure(WIDTH, 6.0)
        for place, (title, read) in enumerate(PANELS):
            axes = figure.add_subplot(2, 2, place + 1)
            _panel(axes, found, lines, read)
            axes.set_title(title)
            axes.set_xlabel("α: scale of what the sites add" if place > 1 else "")
            if place < 2:
                name = literal(found.metric.get("ood" if place == 0 else "id", "loss"))
                axes.set_ylabel(name + axes.get_ylabel(), fontsize=8)
            else:
                axes.set_ylabel("to the dense ID profile" + axes.get_ylabel(), fontsize=8)
            if place == 0:
                handles, labels = axes.get_legend_handles_labels()
        known = dict(zip(labels, handles, strict=True))
        figure.legend([*known.values()], [*known], loc="outside lower left", ncols=4, fontsize=8)
    return figure


def _panel(axes: "Axes", found: Geometry, lines: Sequence[Course], read: Read) -> None:
    values = [v for c in lines for p in c.points for v in _ends(read(p), band=_banded(c))]
    scale = fit_close(values)
    for course in lines:
        stroke, style, width = _look(course, removed_layers(found))
        parts = [_ends(read(p), band=_banded(course)) for p in course.points]
        columns = ([p[0] for p in parts], [p[1] for p in parts], [p[2] for p in parts])
        draw_band(axes, course.alphas, columns, scale, stroke, style, width)
    for p in of_kind(found.points, "removed"):
        if any((c.group, c.sites) == (p.group, p.sites) for c in lines) and _plain(p.group):
            stroke = SELECTED if p.group == "selected" else OTHERS
            _end(axes, 0, scale.place(_ends(read(p))[0]), Stroke("removed", stroke.colour, "X"))
    dense = dense_point(found.points)
    if dense is not None:
        _end(axes, 1, scale.place(_ends(read(dense))[0]), DENSE)
    set_scale(axes, scale)
    alphas = [a for c in lines for a in c.alphas]
    room = 0.04 * (max(alphas) - min(alphas)) or 0.1
    axes.set_xlim(min(alphas) - room, max(alphas) + room)
    axes.set_ylabel(edge_note(scale, values))
    light_grid(axes)


def _banded(course: Course) -> bool:
    """Bands of many sets of sites would hide each other."""
    return course.group == "selected"


def _plain(group: str) -> bool:
    return not group.isdigit()


def _ends(
    value: Mean | float | None, *, band: bool = True
) -> tuple[float | None, float | None, float | None]:
    if not isinstance(value, Mean):
        return value, None, None
    return (value.value, value.low, value.high) if band else (value.value, None, None)


def _look(course: Course, removed: frozenset[int]) -> tuple[Stroke, str, float]:
    if course.group == "selected":
        return Stroke("selected sites", SELECTED.colour, "o"), "-", 1.8
    if _plain(course.group):
        return Stroke("other sites, as many", OTHERS.colour, "o"), "-", 1.0
    own = int(course.group) in removed
    return Stroke(ONE[own], (SELECTED if own else OTHERS).colour, "."), ":", 0.9


def _end(axes: "Axes", alpha: float, value: float, stroke: Stroke) -> None:
    axes.scatter([alpha], [value], s=38, color=stroke.colour, marker=stroke.marker).set(
        zorder=4, clip_on=False, label=stroke.label, edgecolor="white", linewidth=0.6
    )
