"""Figures of a run, where matplotlib is there to draw them."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from shoal.core.plan import Plan
from shoal.engine.driver import Outcome
from shoal.engine.ledger import TraceRow
from shoal.pipeline.listener import Listener


def can_draw(listener: Listener) -> bool:
    """Whether figures can be drawn; says how to get them if not."""
    if find_spec("matplotlib") is not None:
        return True
    listener.note("no figure: matplotlib is missing (pip install 'shoal[report]')")
    return False


def draw_trace(
    rows: Sequence[TraceRow], outcome: Outcome, plan: Plan, folder: Path, listener: Listener
) -> None:
    """Draw the trace of a search as `trace.png` and `trace.svg`."""
    if not rows or not can_draw(listener):
        return
    from shoal.report.figures import save, trace_figure

    search = "" if plan.search is None else plan.search["name"]
    figure = trace_figure(
        rows,
        dense=outcome.dense.mean,
        title=f"{search}, {plan.objective}",
        chosen=str(plan.mask),
    )
    save(figure, folder / "trace")
