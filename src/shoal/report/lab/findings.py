"""Counts that stand above the figures, each straight from the records."""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import isfinite
from statistics import median

from shoal.lab.records import Shift, Shifts
from shoal.lab.study import Placed
from shoal.report.lab.gaps import result
from shoal.report.lab.reading import gain_of, geometric, masked, rescaled_gain, trained_shift
from shoal.report.lab.words import counted, share
from shoal.report.words import number


def wider(models: Sequence[Shifts]) -> list[Shift]:
    """Tasks wider than training, of all models."""
    return [s for m in models if (t := trained_shift(m)) for s in m.shifts if s.sigma > t.sigma]


def narrower(models: Sequence[Shifts]) -> list[Shift]:
    """Tasks narrower than training, of all models."""
    return [s for m in models if (t := trained_shift(m)) for s in m.shifts if s.sigma < t.sigma]


def gains_told(models: Sequence[Shifts]) -> str:
    """Where the intervals of BEST's gains lie, in distribution and on both kinds of shift."""
    own = [t for m in models if (t := trained_shift(m))]
    parts = (("in distribution", own), ("on wider tasks", wider(models)),
             ("on narrower tasks", narrower(models)))  # fmt: skip
    told = [f"{name}, {_gained(shifts)}" for name, shifts in parts if shifts]
    return f"Intervals of the gain of BEST: {'; '.join(told)}." if told else ""


def _gained(shifts: Iterable[Shift]) -> str:
    gains = [g for s in shifts if (g := gain_of(s, "best")) is not None]
    above = sum(g.low is not None and g.low > 0 for g in gains)
    below = sum(g.high is not None and g.high < 0 for g in gains)
    known = [g.value for g in gains if isfinite(g.value)]
    middle = f" (median gain {share(median(known))})" if known else ""
    return f"{above} of {len(gains)} above zero, {below} below{middle}"


def controls_told(models: Sequence[Shifts]) -> str:
    """In how many wider cells each control gains more than BEST."""
    found = Counter[str]()
    cells = wider(models)
    for shift in cells:
        best = gain_of(shift, "best")
        if best is None:
            continue
        for name, other in (
            ("the best single block", gain_of(shift, "single")),
            ("the best random mask", gain_of(shift, "random_best")),
            ("the rescaled dense model", rescaled_gain(shift)),
        ):
            found[name] += other is not None and other.value > best.value
    if not cells:
        return ""
    told = "; ".join(f"{name} in {count}" for name, count in found.items())
    single = sum((b := masked(s, "best")) is not None and b.mask.num_blocks == 1 for s in cells)
    return (
        f"Of {len(cells)} cells on wider tasks, these gain more than BEST: {told}. In {single} "
        "BEST is itself the removal of one block."
    )


def cost_told(models: Sequence[Shifts]) -> str:
    """What masks chosen for wider tasks cost in distribution, and the converse."""
    there: list[float] = []
    back: list[float] = []
    for model in models:
        trained = trained_shift(model)
        if trained is None:
            continue
        far = {s.task for s in model.shifts if s.sigma > trained.sigma}
        for cell in model.transfer:
            if cell.which == "best" and cell.task == trained.task and cell.chosen_on in far:
                there.append(1 - cell.test.gain.value)
            if cell.which == "best" and cell.chosen_on == trained.task and cell.task in far:
                back.append(1 - cell.test.gain.value)
    parts = (
        (there, "chosen for wider tasks changes the loss on training's task"),
        (back, "chosen for training's task changes the loss on wider tasks"),
    )
    return " ".join(
        f"BEST {what} by a factor of {number(geometric(own))} (geometric mean of {len(own)})."
        for own, what in parts
        if own
    )


def gaps_told(geometries: Sequence[Placed]) -> str:
    """How many gaps of norms and of distances get smaller and larger, on wider tasks."""
    own = [p for p in geometries if p.sigma > p.trained]
    lines = []
    for kind in ("norm", "distance"):
        found = Counter[str](
            result(c) for p in own if (c := p.geometry.changes.get(kind)) is not None
        )
        if found:
            lines.append(f"{kind}s: {counted(found)}")
    return f"On wider tasks, {'; '.join(lines)}." if lines else ""


def surrogates_told(geometries: Sequence[Placed]) -> str:
    """How many surrogates describe their block well enough."""
    found = [one for p in geometries for one in p.geometry.linear]
    if not found:
        return ""
    accepted = sum(one.accepted for one in found)
    return (
        f"{accepted} of {len(found)} linear surrogates reach the least held-out R² that is "
        "asked for; blocks without one on both tasks are not judged."
    )
