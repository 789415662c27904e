"""From numbers to a verdict per kind of use.

A use is as good as the worst of the few numbers that decide it. A verdict is settled where the
intervals of those numbers lie on one side of the limits; else more prompts or items are needed.
"""

import math
from collections.abc import Iterable, Sequence

from shoal.config.thresholds import Thresholds
from shoal.diagnosis.advice import advice
from shoal.diagnosis.records import LEVELS, Diagnosis, FreeRun, Mean, Reason, Verdict

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
    ends = [mean.value, mean.low, mean.high]
    levels = {level_of(x, safe, broken) for x in ends if x is not None}
    return Reason(
        measure=name,
        meaning=Thresholds.model_fields[name].description or name,
        value=mean.value,
        low=mean.low,
        high=mean.high,
        safe=safe,
        broken=broken,
        level=level_of(mean.value, safe, broken),
        settled=mean.low is not None and len(levels) == 1,
    )


def _settled(reasons: Sequence[Reason]) -> bool:
    """Whether the worst level is the same wherever in its interval each number lies."""
    best = worst = 0
    for reason in reasons:
        if reason.low is None or reason.high is None:
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
    forced = diagnosis.teacher_forced
    if forced is not None and diagnosis.settings.get("steps", math.inf) <= forced.short_steps:
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
