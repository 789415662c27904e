"""Both models write by themselves: when they part, and how far apart they are before and after."""

from typing import TYPE_CHECKING

from shoal.diagnosis.records import FreeRun, FreeRuns
from shoal.report.diagnosis.marks import run_label, run_strokes
from shoal.report.diagnosis.steps import set_steps
from shoal.report.marks import (
    WIDTH,
    Scale,
    curve_ends,
    draw_curve,
    draw_dot,
    edge_note,
    fit,
    mean_ends,
    set_rows,
    set_scale,
)
from shoal.report.style import INK, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def runs_figure(free: FreeRuns) -> "Figure | None":
    """Draw the share of runs that have parted and the divergence by step, controls beside.

    Returns:
        None where there is no run.
    """
    runs = list(free.runs)
    if not runs:
        return None
    strokes = run_strokes(runs)
    with styled():
        figure = new_figure(WIDTH, 4.6 + 0.24 * len(runs))
        # The long names of the rows below must not push the panels above aside.
        parts = figure.subfigures(2, 1, height_ratios=[3.0, 0.75 + 0.24 * len(runs)], squeeze=False)
        above, below = parts[:, 0]
        share = above.add_subplot(1, 2, 1)
        for run, (stroke, style) in zip(runs, strokes, strict=True):
            draw_curve(share, run.diverged, Scale(0, 1, False), stroke, style)
        share.set_ylim(0, 1.03)
        set_steps(share, [r.diverged for r in runs])
        share.set_title("Share of runs that have parted")
        share.set_ylabel("share with a different token so far")
        handles, labels = share.get_legend_handles_labels()
        _kl(above.add_subplot(1, 2, 2), runs)
        above.legend(handles, labels, loc="outside lower left", ncols=3, fontsize=8)
        _before_and_after(below.add_subplot(), runs)
    return figure


def _kl(axes: "Axes", runs: list[FreeRun]) -> None:
    curves = [r.steps["kl"] for r in runs if "kl" in r.steps]
    values = [v for c in curves for v in c.value]
    scale = fit(values if len(values) > len(curves) else curve_ends(curves))
    for run, (stroke, style) in zip(runs, run_strokes(runs), strict=True):
        if "kl" in run.steps:
            draw_curve(axes, run.steps["kl"], scale, stroke, style)
    set_scale(axes, scale)
    set_steps(axes, curves)
    axes.set_title("KL at each step, each in its own text")
    axes.set_ylabel("KL(dense || other), nats" + edge_note(scale, values))


def _before_and_after(axes: "Axes", runs: list[FreeRun]) -> None:
    means = [part.get("kl") for r in runs for part in (r.before, r.after)]
    scale = fit(mean_ends(means))
    set_scale(axes, scale, "x")
    told = set()
    for row, (run, (stroke, _)) in enumerate(zip(runs, run_strokes(runs), strict=True)):
        for when, part in (
            ("up to the first different token", run.before),
            ("after it", run.after),
        ):
            hollow = when == "after it"
            draw_dot(axes, part.get("kl"), row, scale, stroke, hollow=hollow)
            told.add((hollow, when))
    for hollow, when in sorted(told):
        face = "white" if hollow else INK
        axes.scatter([], [], s=30, facecolors=face, edgecolors=INK, label=when)
    set_rows(axes, [run_label(r) for r in runs])
    axes.set_title("KL(dense || other)")
    note = edge_note(scale, [m.value for m in means if m is not None], "x")
    axes.set_xlabel(f"nats{note}")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, fontsize=8, borderpad=0)
