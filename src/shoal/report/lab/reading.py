"""What figures and tables take from the records of a lab run."""

from collections.abc import Iterable, Mapping, Sequence
from math import exp, inf, isfinite, isnan, log, nan
from typing import Any

import numpy as np
from scipy.stats import t

from shoal.core.records import Mean
from shoal.geometry.records import Point
from shoal.lab.records import Measured, Shift, Shifts
from shoal.lab.study import Placed


def range_names(models: Sequence[Shifts]) -> dict[str, str]:
    """Model -> what it was trained on: its coefficients, and what else the models differ in."""
    differing = [
        key
        for key in ("degree", "inputs")
        if len({str(model.trained.get(key)) for model in models}) > 1
    ]
    return {model.model: _range_name(model.trained, differing) for model in models}


def _range_name(trained: Mapping[str, Any], differing: Sequence[str]) -> str:
    parts = [f"degree {trained.get('degree')}"] if "degree" in differing else []
    parts.append(str(trained.get("coefficients")))
    return ", ".join(parts + ([f"x {trained.get('inputs')}"] if "inputs" in differing else []))


def by_range(models: Sequence[Shifts]) -> dict[str, list[Shifts]]:
    """Training range -> the models that were trained on it, in the order of the run."""
    names, found = range_names(models), dict[str, list[Shifts]]()
    for model in models:
        found.setdefault(names[model.model], []).append(model)
    return found


def trained_shift(model: Shifts) -> Shift | None:
    """The task of training, which may be missing from a record of a single task."""
    return next((s for s in model.shifts if s.in_distribution), None)


def in_order(shifts: Iterable[Shift]) -> list[Shift]:
    """Tasks by width; that of training before others of the same."""
    return sorted(shifts, key=lambda s: (s.sigma, not s.in_distribution))


def masked(shift: Shift, name: str) -> Measured | None:
    """A mask of a task by name."""
    return next((m for m in shift.masks if m.name == name), None)


def gain_of(shift: Shift, name: str) -> Mean | None:
    """Gain of a mask of a task; None where there is no such mask."""
    found = masked(shift, name)
    return None if found is None else found.test.gain


def rescaled_gain(shift: Shift) -> Mean | None:
    """Gain of the dense model with its output times a factor."""
    tried = shift.saturation.rescaled
    found = next((r for r in tried if (r.model, r.form) == ("dense", "scale")), None)
    return None if found is None else found.test.gain


def random_range(shift: Shift) -> tuple[float, float, float] | None:
    """Least, median and largest gain of the random masks; None where there are none."""
    gains = sorted(m.test.gain.value for m in shift.random if not isnan(m.test.gain.value))
    return (gains[0], gains[len(gains) // 2], gains[-1]) if gains else None


def over_models(values: Sequence[float]) -> Mean:
    """Mean over models with its 95% t-interval.

    Returns:
        Without an interval for a single model, or where a value is not finite; `count` is the
        number of models.

    Raises:
        ValueError: If there are no values.
    """
    if not values:
        raise ValueError("there are no models to average over")
    count = len(values)
    middle = sum(values) / count
    if count < 2 or not isfinite(middle):
        return Mean(value=middle, low=None, high=None, count=count)
    with np.errstate(over="ignore", invalid="ignore"):
        half = float(t.ppf(0.975, count - 1) * np.std(values, ddof=1) / count**0.5)
    if not isfinite(half):
        return Mean(value=middle, low=None, high=None, count=count)
    return Mean(value=middle, low=middle - half, high=middle + half, count=count)


def mean_gains(models: Sequence[Shifts], name: str = "best") -> dict[str, tuple[Shift, Mean]]:
    """Task -> one of its shifts, and the mean gain over the models that have it."""
    values: dict[str, list[float]] = {}
    shifts: dict[str, Shift] = {}
    for model in models:
        for shift in model.shifts:
            gain = gain_of(shift, name)
            if gain is not None:
                values.setdefault(shift.task, []).append(gain.value)
                shifts.setdefault(shift.task, shift)
    return {task: (shifts[task], over_models(own)) for task, own in values.items()}


def log_or_inf(ratio: float) -> float:
    """Log of a ratio; -inf for none, not a number for what is none."""
    return nan if isnan(ratio) else log(ratio) if ratio > 0 else -inf


def geometric(ratios: Sequence[float]) -> float:
    """Geometric mean; not a number without any, or where 0 meets infinity."""
    if not ratios:
        return nan
    middle = sum(map(log_or_inf, ratios)) / len(ratios)
    return exp(middle) if middle < 700 else nan if isnan(middle) else inf


def points_of(placed: Placed, intervention: str, group: str | None = None) -> list[Point]:
    """Points of one kind, at some sites if said."""
    return [
        p
        for p in placed.geometry.points
        if p.intervention == intervention and group in (None, p.group)
    ]


def dense_point(placed: Placed) -> Point | None:
    """The model as it is."""
    return next(iter(points_of(placed, "dense")), None)


def removal_gain(placed: Placed) -> float | None:
    """Gain of removing the selected blocks on the functions of the geometry; None if not tried."""
    dense = dense_point(placed)
    removed = next(iter(points_of(placed, "removed", "selected")), None)
    if dense is None or removed is None or not dense.loss_ood.value > 0:
        return None
    return 1 - removed.loss_ood.value / dense.loss_ood.value
