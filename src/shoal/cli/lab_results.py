"""A lab run as tables on the console, within 100 columns."""

from textwrap import wrap

from shoal.cli.screen import out, table
from shoal.lab.records import Shift, Shifts
from shoal.lab.study import LabRun
from shoal.report.lab.reading import (
    gain_of,
    in_order,
    masked,
    random_range,
    range_names,
    rescaled_gain,
)
from shoal.report.lab.tables import sigma
from shoal.report.lab.words import removed, share, stacked_gain, supporting
from shoal.report.words import mean, number

LOSS = "squared error on functions that chose nothing; gains are shares of the dense loss"


def print_run(run: LabRun) -> None:
    """Print the claims with their answers, then per model and task what goes and what it gains."""
    names = range_names(run.models)
    for i, model in enumerate(run.models):
        learned = run.learning[i] if i < len(run.learning) else None
        title = f"{model.model}, trained on {names[model.model]}"
        if learned is not None:
            title += f"; predicting zero errs {mean(learned)} times as much"
        _print_model(title, model)
    if run.models:
        out.print(f"{LOSS}; * training", markup=False, soft_wrap=True)
    if run.claims:
        rows = [[c.name, c.answer, supporting(c), str(c.models)] for c in run.claims]
        table("Claims", ["claim", "answer", "cells that support", "models"], rows)
    for note in run.notes:
        out.print(note, markup=False, soft_wrap=True)


def _print_model(title: str, model: Shifts) -> None:
    header = ["σ", "dense\nloss", "BEST\nremoves", "gain", "best\nsingle", "best\nrandom"]
    header += ["random,\nleast, largest", "dense,\nrescaled"]
    out.print(title, style="bold", markup=False, soft_wrap=True)
    table("", header, [_row(s) for s in in_order(model.shifts)], numbers=True)


def _row(shift: Shift) -> list[str]:
    dense, best = masked(shift, "dense"), masked(shift, "best")
    spread = random_range(shift)
    rescaled = rescaled_gain(shift)
    singles = [gain_of(shift, name) for name in ("single", "random_best")]
    return [
        sigma(shift),
        number(dense.test.loss.value) if dense else "–",
        "\n".join(wrap(removed(best.mask).replace(",", ", "), 12)) if best else "–",
        stacked_gain(best.test.gain if best else None),
        *(share(g.value if g else None) for g in singles),
        f"{share(spread[0])}\n{share(spread[2])}" if spread else "–",
        share(rescaled.value if rescaled else None),
    ]
