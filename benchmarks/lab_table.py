"""The tables and figures of docs/why_removing_helps.md.

shoal lab run --workers 2 --out run
python benchmarks/lab_table.py run --figures docs/img --data docs/data/why_removing_helps.json
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from shoal.core.records import Mean
from shoal.lab.claims.causes import recovered
from shoal.lab.claims.gains import helped
from shoal.lab.claims.geometry import growth
from shoal.lab.records import Shift
from shoal.lab.study import LabRun, Placed
from shoal.report.lab.figures import lab_figures
from shoal.report.lab.reading import gain_of, in_order, masked, random_range, rescaled_gain
from shoal.report.style import save

FIGURES = ("gain", "controls", "transfer", "removed", "gaps", "relation", "signatures")
FIGURES += ("alphas", "inverses", "lengths", "saturation")


def main() -> None:
    """Print the tables, draw the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--figures", type=Path)
    parser.add_argument("--data", type=Path, help="file for the claims with all their evidence")
    options = parser.parse_args()
    run = LabRun.model_validate_json((options.run / "lab_run.json").read_text("utf-8"))
    claims(run)
    learned(run)
    shifts(run)
    transfer(run)
    placed(run)
    controls(run)
    splits(run)
    if options.data is not None:
        told = {"settings": run.settings, "claims": [c.model_dump(mode="json") for c in run.claims]}
        options.data.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    if options.figures is not None:
        drawn = lab_figures(run)
        for name in FIGURES:
            if name in drawn:
                save(drawn[name], options.figures / f"lab_{name}")


def claims(run: LabRun) -> None:
    """The claims with their answers."""
    rows = [
        [c.name, c.answer, f"{sum(e.supports for e in c.evidence)} of {len(c.evidence)}"]
        for c in run.claims
    ]
    table(["claim", "answer", "cells"], rows)
    for claim in run.claims:
        for name, value in claim.facts.items():
            print(f"- {claim.name}: {name}: {value:.3g}")
    print()


def learned(run: LabRun) -> None:
    """How well the task of training was learned."""
    rows = []
    for model, ratio in zip(run.models, run.learning, strict=True):
        shift = next(s for s in model.shifts if s.in_distribution)
        last = {name: curve.value[-1] for name, curve in shift.lengths.items()}
        rows.append(
            [
                model.model,
                *(f"{last[n]:.3g}" for n in ("dense", "least_squares", "zero")),
                told(ratio, "{:.0f}"),
            ]
        )
    table(["model", "error at 20 examples", "least squares", "zero", "zero / model"], rows)


def shifts(run: LabRun) -> None:
    """What is removed for each sigma, what that gains, and the controls."""
    rows = [
        [model.model, f"{s.sigma:g}{'*' * s.in_distribution}", *_shift(s)]
        for model in run.models
        for s in in_order(model.shifts)
    ]
    header = ["model", "sigma", "dense", "removed", "gain", "best single", "best of random"]
    table([*header, "random, best", "rescaled", "beyond rescaled", "both rescaled"], rows)


def _shift(shift: Shift) -> list[str]:
    best = masked(shift, "best")
    mask = "–" if best is None or not best.mask else str(best.mask)[2:-1]
    spread = random_range(shift)
    controls = [gain_of(shift, name) for name in ("single", "random_best")]
    saturation = shift.saturation
    return [
        f"{shift.selection.dense:.3g}",
        mask,
        percent(best.test.gain if best and best.mask else None),
        *(percent(g, brief=True) for g in controls),
        "–" if spread is None else f"{spread[2]:.0%}",
        percent(rescaled_gain(shift), brief=True),
        percent(saturation.best_beyond_scale.gain),
        percent(saturation.scaled_beyond_scale.gain),
    ]


def transfer(run: LabRun) -> None:
    """What masks for shifted functions cost in distribution."""
    rows = []
    for model in run.models:
        own = next(s.task for s in model.shifts if s.in_distribution)
        for cell in model.transfer:
            if cell.which == "best" and cell.task == own and cell.chosen_on != own and cell.mask:
                ratio = 1 - cell.test.gain.value
                rows.append([model.model, cell.chosen_on, str(cell.mask)[2:-1], f"{ratio:.3g}"])
    table(["model", "chosen on", "removed", "error in distribution, times dense"], rows)


def placed(run: LabRun) -> None:
    """What happens to the geometry, and what the interventions do."""
    rows = [
        [p.model, f"{p.sigma:g}", str(p.geometry.mask)[2:-1], *_placed(p)]
        for p in run.geometries
        if p.geometry.mask
    ]
    header = ["model", "sigma", "removed", "saves", "norm gap", "distance gap", "others' gap"]
    table([*header, "distances times", "inverse", "random", "rotated"], rows)


def controls(run: LabRun) -> None:
    """What random masks do where pruning helps on a wider task."""
    count = closer = worse = 0
    for one in helped(run.models, run.geometries):
        points = one.geometry.points
        dense = next(p for p in points if p.intervention == "dense")
        for p in points:
            if p.intervention == "removed" and p.group == "unselected":
                count += 1
                closer += p.gaps.distance < dense.gaps.distance
                worse += p.loss_ood.value > dense.loss_ood.value
    print(f"random masks: {count}, smaller gap than dense: {closer}, larger error: {worse}\n")


def splits(run: LabRun) -> None:
    """Gain on targets that training could have shown, and on others."""
    rows = [
        [
            model.model,
            f"{s.sigma:g}",
            *(f"{part.best.gain.value:.0%} ({part.share:.0%} of points)" for part in found),
            *(f"{s.saturation.ranges[name].largest:.2f}" for name in ("dense", "best")),
            f"{s.saturation.largest_y:.1f}",
            next(f"{r.factor:.2f}" for r in s.saturation.rescaled if r.model == "dense"),
        ]
        for model in run.models
        for s in in_order(model.shifts)
        if s.selection.best and len(found := s.saturation.splits) == 2
    ]
    header = ["model", "sigma", "gain inside", "gain outside", "largest prediction, dense"]
    table([*header, "BEST", "largest y", "factor"], rows)


def _placed(one: Placed) -> list[str]:
    geometry, points = one.geometry, one.geometry.points
    gaps = [f"{c.before:.2f} → {c.after:.2f}" for c in (geometry.changes[n] for n in GAPS)]
    others = [
        f"{p.gaps.distance:.2f}"
        for p in points
        if p.intervention == "removed" and p.group == "unselected"
    ]
    gain = one.saved or 0.0
    shares = [
        f"{recovered(points, [p for p in points if p.intervention == kind]):.0%}"
        if gain > 0
        else "–"
        for kind in ("inverse", "random", "rotated")
    ]
    grown = 2.718281828459045 ** growth(geometry)
    return [f"{gain:.0%}", *gaps, ", ".join(others), f"{grown:.2f}", *shares]


GAPS = ("norm", "distance")


def percent(found: Mean | None, *, brief: bool = False) -> str:
    """A gain with its interval."""
    if found is None:
        return "–"
    if brief or found.low is None or found.high is None:
        return f"{found.value:.0%}"
    return f"{found.value:.0%} [{found.low:.0%}, {found.high:.0%}]"


def told(found: Mean, form: str) -> str:
    """A mean with its interval."""
    parts = [found.value, found.low, found.high]
    value, low, high = ("–" if p is None else form.format(p) for p in parts)
    return f"{value} [{low}, {high}]"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table."""
    for row in (header, ["---"] * len(header), *rows):
        print("| " + " | ".join(row) + " |")
    print()


if __name__ == "__main__":
    main()
