"""The numbers of the shift experiments as tables."""

from collections.abc import Sequence

from shoal.core.records import Mean
from shoal.lab.records import Shift, Shifts, Split
from shoal.lab.study import Claim, LabRun
from shoal.report.lab.reading import (
    by_range,
    gain_of,
    in_order,
    masked,
    mean_gains,
    random_range,
    range_names,
    rescaled_gain,
    trained_shift,
)
from shoal.report.lab.transfer import ratios
from shoal.report.lab.words import gain, removed, share, stacked_gain
from shoal.report.page import Table
from shoal.report.words import interval, mean, number, stacked


def learning_table(run: LabRun) -> Table:
    """How well each model does on its own task."""
    names = range_names(run.models)
    header = ["model", "trained on", "seed", "mean loss", "at the last point", "ridge there"]
    header.append("zero predictor / model")
    rows = []
    for i, model in enumerate(run.models):
        shift = trained_shift(model)
        rows.append(
            [
                model.model,
                names[model.model],
                str(model.seed),
                stacked(_loss(shift, "dense")),
                _last(shift, "dense"),
                _last(shift, "ridge"),
                stacked(run.learning[i] if i < len(run.learning) else None),
            ]
        )
    return Table(header, rows, "Squared error on the task of training, whole models")


def mean_gains_table(models: Sequence[Shifts]) -> Table:
    """Gain of BEST on each task, mean over models that were trained alike."""
    header = ["trained on", "σ", "models", "BEST removes nothing in", "mean gain [95% t-interval]"]
    rows = []
    for name, own in by_range(models).items():
        found = mean_gains(own)
        for shift in in_order(s for s, _ in found.values()):
            nothing = sum(
                not best.mask
                for m in own
                for s in m.shifts
                if s.task == shift.task and (best := masked(s, "best"))
            )
            average = found[shift.task][1]
            rows.append([name, sigma(shift), str(average.count), str(nothing), gain(average)])
    return Table(
        header, rows, "Gain of BEST on test functions; intervals are over models; * training"
    )


def shifts_table(model: Shifts) -> Table:
    """One row per task of a model: what goes, the losses, the gain."""
    header = ["σ", "BEST removes", "dense loss", "BEST loss", "gain of BEST", "BSBA removes"]
    header += ["gain of BSBA"]
    rows = []
    for shift in in_order(model.shifts):
        best, bsba = masked(shift, "best"), masked(shift, "bsba")
        rows.append(
            [
                sigma(shift),
                removed(best.mask) if best else "–",
                stacked(_loss(shift, "dense")),
                stacked(_loss(shift, "best")),
                stacked_gain(best.test.gain if best else None),
                removed(bsba.mask) if bsba else "–",
                stacked_gain(bsba.test.gain if bsba else None),
            ]
        )
    return Table(header, rows, f"{model.model}: losses on test functions; * training")


def controls_table(model: Shifts) -> Table:
    """One row per task of a model: the gain of BEST and of every control."""
    header = ["σ", "BEST", "best single block", "best random", "random masks", "random better"]
    header += ["dense, rescaled", "BEST beyond rescaling"]
    rows = []
    for shift in in_order(model.shifts):
        spread = random_range(shift)
        rows.append(
            [
                sigma(shift),
                stacked_gain(gain_of(shift, "best")),
                stacked_gain(gain_of(shift, "single")),
                stacked_gain(gain_of(shift, "random_best")),
                f"{share(spread[1])}\n[{share(spread[0])}, {share(spread[2])}]" if spread else "–",
                share(shift.random_better),
                stacked_gain(rescaled_gain(shift)),
                stacked_gain(shift.saturation.best_beyond_scale.gain),
            ]
        )
    caption = (
        f"{model.model}: gains on test functions; of random masks the median, least and largest; "
        "* training"
    )
    return Table(header, rows, caption)


def transfer_table(name: str, models: Sequence[Shifts]) -> Table:
    """Loss over dense loss of each task's BEST on every task."""
    names, labels, table = ratios(models)
    rows = [
        [label, *(number(float(v)) for v in own)] for label, own in zip(labels, table, strict=True)
    ]
    caption = f"Trained on {name}: loss over dense loss; rows: chosen on σ, columns: judged on σ"
    return Table(["chosen on", *labels], rows, caption) if names else Table(["–"], [], caption)


def saturation_table(model: Shifts) -> Table:
    """One row per task of a model: sizes, and where the gain comes from."""
    header = ["σ", "largest |y|", "dense", "BEST", "dense beyond bound", "points beyond bound"]
    header += ["gain inside", "gain outside"]
    rows = []
    for shift in in_order(model.shifts):
        found = shift.saturation
        dense, best = found.ranges.get("dense"), found.ranges.get("best")
        parts = {split.where: split for split in found.splits}
        outside = parts.get("outside")
        rows.append(
            [
                sigma(shift),
                number(found.largest_y),
                number(dense.largest if dense else None),
                number(best.largest if best else None),
                share(dense.beyond_bound if dense else None),
                share(outside.share if outside else None),
                stacked_gain(_part(parts.get("inside"))),
                stacked_gain(_part(outside)),
            ]
        )
    bound = next((s.saturation.bound for s in model.shifts if s.saturation.bound), None)
    told = f"bound {number(bound)}" if bound is not None else "training had no bound"
    caption = f"{model.model}: largest values and predictions, {told}; * training"
    return Table(header, rows, caption)


def evidence_table(claim: Claim) -> Table:
    """What every model and task says of a claim."""
    rows = [
        [e.model, e.task, interval(e.value, e.low, e.high), "yes" if e.supports else "no", e.remark]
        for e in claim.evidence
    ]
    header = ["model", "task", "number", "supports", "remark"]
    return Table(header, rows, claim.name, numbers=False)


def sigma(shift: Shift) -> str:
    """Width of a task, and its x where those are not training's; that of training has a star."""
    x = shift.task.partition(", x ")[2]
    return f"{shift.sigma:g}{'*' * shift.in_distribution}{f', x {x}' * bool(x)}"


def _loss(shift: Shift | None, name: str) -> Mean | None:
    found = masked(shift, name) if shift else None
    return found.test.loss if found else None


def _last(shift: Shift | None, name: str) -> str:
    curve = shift.lengths.get(name) if shift else None
    if curve is None or not curve.value:
        return "–"
    last = Mean(
        value=curve.value[-1], low=curve.low[-1], high=curve.high[-1], count=curve.count[-1]
    )
    return mean(last).replace(" [", "\n[")


def _part(split: Split | None) -> Mean | None:
    """Gain on a part of the points; None where no point lies there."""
    return None if split is None or split.share == 0 else split.best.gain
