"""How a diagnosis is drawn: which colour stands for what."""

from collections.abc import Sequence
from typing import Any

from shoal.diagnosis.records import FreeRun
from shoal.report.marks import AMBER, GREEN, GREY, PURPLE, Stroke, literal
from shoal.report.style import ACCENT, INK, MAIN

GAPS = {
    "hidden_gap": Stroke("hidden states", MAIN, "o"),
    "logit_gap": Stroke("logits", AMBER, "s"),
    "probability_gap": Stroke("probabilities", ACCENT, "^"),
    "subspace_gap": Stroke("answer tokens", GREEN, "D"),
}
"""1 - cosine in each space."""

KINDS = {
    "block": Stroke("block", INK, "s"),
    "attn": Stroke("attention", MAIN, "o"),
    "mlp": Stroke("MLP", ACCENT, "^"),
}
"""Kinds of sites."""

CONTROLS = (MAIN, GREEN, PURPLE, GREY)
DASHES: tuple[Any, ...] = ((0, (4, 2)), (0, (1, 1.3)), (0, (5, 1.5, 1, 1.5)))


def way(run: FreeRun) -> str:
    """How a pair of runs was decoded."""
    return "greedy" if run.decoding == "greedy" else f"{run.decoding}, T = {run.temperature:g}"


def run_label(run: FreeRun) -> str:
    """Name of a pair of runs, with how it was decoded."""
    return f"{run.name}, {way(run)}"


def run_strokes(runs: Sequence[FreeRun]) -> list[tuple[Stroke, Any]]:
    """Colour and line style of each run: a colour per name, solid for greedy, else dashed."""
    controls = list(dict.fromkeys(r.name for r in runs if r.control))
    ways = list(dict.fromkeys((r.decoding, r.temperature) for r in runs if r.decoding != "greedy"))
    found: list[tuple[Stroke, Any]] = []
    for run in runs:
        colour = CONTROLS[controls.index(run.name) % len(CONTROLS)] if run.control else ACCENT
        style = "-"
        if run.decoding != "greedy":
            style = DASHES[ways.index((run.decoding, run.temperature)) % len(DASHES)]
        marker = "o" if run.control else "D"
        found.append((Stroke(literal(run_label(run)), colour, marker), style))
    return found
