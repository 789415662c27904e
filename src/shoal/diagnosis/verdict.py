"""From numbers to a verdict per kind of use.

A use is as good as the worst of the few numbers that decide it. A verdict is settled where the
intervals of those numbers lie on one side of the limits; else more prompts or items are needed.

The bootstrap of n equal values has no width, but up to 3/n of all others may differ (the rule of
three, at 95%), so the interval of a share is widened by that there. And from a handful of prompts
or items nothing is settled.
"""

import math
from collections.abc import Iterable, Sequence

from shoal.config.thresholds import Thresholds
from shoal.core.records import Mean
from shoal.diagnosis.advice import advice
from shoal.diagnosis.records import LEVELS, Diagnosis, FreeRun, Reason, Verdict

SETTLED_FROM = 20
"""Prompts or items that a settled verdict needs at least."""

RANGES = {
    "choice_kept": (0.0, 1.0),
    "choice_accuracy": (-1.0, 1.0),
    "neighbour_overlap": (0.0, 1.0),
    "neighbour_ranks": (-1.0, 1.0),
    "found": (-1.0, 1.0),
    "short_flip": (0.0, 1.0),
    "looping": (-1.0, 1.0),
}
"""Least and largest value of the measures that have them."""

USES = ("choice", "retrieval", "short", "long")
"""Kinds of use: multiple choice and classification, retrieval, short and long generation."""


def level_of(value: float, safe: float, broken: float) -> str:
    """The level of a value; the larger limit says which direction is better.

    Example:
        >>> level_of(0.7, safe=0.9, broken=0.6), level_of(0.7, safe=0.05, broken=0.5)
        ('risky', 'broken')
    """
    sign = 1 if safe > broken else -1
    if sign * value >= sign * safe:
        return "safe"
    # NaN compares as false, and is no good news.
    return "risky" if sign * value >= sign * broken else "broken"


def verdicts(diagnosis: Diagnosis, thresholds: Thresholds) -> tuple[Verdict, ...]:
    """A verdict for every use that something was measured for.

    Args:
        diagnosis: What was measured; its own verdicts are not looked at.
        thresholds: The limits.
    """
    measured = {
        "choice": _choice(diagnosis),
        "retrieval": _retrieval(diagnosis),
        "short": _short(diagnosis),
        "long": _long(diagnosis),
    }
    found: list[Verdict] = []
    for use in USES:
        reasons = tuple(
            _reason(name, mean, thresholds) for name, mean in measured[use] if mean is not None
        )
        if reasons:
            level = max(reasons, key=lambda r: LEVELS.index(r.level)).level
            settled = _settled(reasons)
            found.append(Verdict(use=use, level=level, settled=settled, reasons=reasons))
    return tuple(
        v.model_copy(update={"advice": advice(v, found, diagnosis)}) if v.level != "safe" else v
        for v in found
    )


def _reason(name: str, mean: Mean, thresholds: Thresholds) -> Reason:
    safe, broken = getattr(thresholds, name)
    low, high = _interval(name, mean)
    levels = {level_of(x, safe, broken) for x in (mean.value, low, high) if x is not None}
    return Reason(
        measure=name,
        meaning=Thresholds.model_fields[name].description or name,
        value=mean.value,
        low=low,
        high=high,
        count=mean.count,
        safe=safe,
        broken=broken,
        level=level_of(mean.value, safe, broken),
        settled=low is not None and len(levels) == 1 and mean.count >= SETTLED_FROM,
    )


def _interval(name: str, mean: Mean) -> tuple[float | None, float | None]:
    """The bootstrap interval, or that of the rule of three where all values are equal."""
    if mean.low is None or mean.high is None or mean.low < mean.high or name not in RANGES:
        return mean.low, mean.high
    least, most = RANGES[name]
    reach = 3 / mean.count
    return max(least, mean.low - reach), min(most, mean.high + reach)


def _settled(reasons: Sequence[Reason]) -> bool:
    """Whether the worst level is the same wherever in its interval each number lies."""
    best = worst = 0
    for reason in reasons:
        if reason.low is None or reason.high is None or reason.count < SETTLED_FROM:
            return False
        ends = (reason.value, reason.low, reason.high)
        ranks = [LEVELS.index(level_of(x, reason.safe, reason.broken)) for x in ends]
        best, worst = max(best, min(ranks)), max(worst, max(ranks))
    return best == worst


Found = Iterable[tuple[str, Mean | None]]


def _choice(diagnosis: Diagnosis) -> Found:
    """The worst task under its real option scoring."""
    tasks = [o for o in diagnosis.choices if o.scoring == "options"]
    if tasks:
        yield "choice_kept", min((t.kept for t in tasks), key=lambda m: m.value)
        yield "choice_accuracy", min((t.accuracy_change for t in tasks), key=lambda m: m.value)


def _retrieval(diagnosis: Diagnosis) -> Found:
    """Mean-pooled states, the better known way to embed."""
    for found in diagnosis.retrieval:
        if found.pooling == "mean":
            yield "neighbour_overlap", found.overlap
            yield "neighbour_ranks", found.rank_correlation
            yield "found", found.found_change


def _short(diagnosis: Diagnosis) -> Found:
    forced = diagnosis.teacher_forced
    if forced is not None:
        yield "short_kl", forced.short.get("kl")
        yield "short_flip", forced.short.get("flip")


def _long(diagnosis: Diagnosis) -> Found:
    """Nothing where no more steps were run than a short generation has."""
    forced, settings = diagnosis.teacher_forced, diagnosis.settings
    if settings.get("steps", math.inf) <= settings.get("short_steps", 0):
        return
    if forced is not None:
        yield "long_kl", forced.overall.get("kl")
    runs = () if diagnosis.free_runs is None else diagnosis.free_runs.runs
    yield "looping", _text_change(runs, "greedy", "looping")
    yield "surprise", _text_change(runs, "sampled", "surprise")


def _text_change(runs: Iterable[FreeRun], decoding: str, measure: str) -> Mean | None:
    for run in runs:
        if not run.control and run.decoding == decoding:
            return run.text_change.get(measure)
    return None
