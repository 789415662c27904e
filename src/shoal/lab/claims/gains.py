"""Claims about gains: none in distribution, some under shift, and more than controls bring."""

from collections.abc import Iterator, Sequence

from shoal.core.records import Mean
from shoal.lab.claims.judging import judged
from shoal.lab.records import Compared, Measured, Shift, Shifts
from shoal.lab.study import Claim, Evidence, Placed, of_best

MATTERS = 0.05
"""Share of the dense loss that a gain must save to count, besides an interval above zero."""

CHANCE = 0.05
"""Share of random masks that may do as well by chance."""

CONTROLS = {
    "single": "the best single removal",
    "random_best": "the best of as many random masks",
    "random": "95% of random masks",
    "rescaling": "a rescaled output",
}
"""What the gain is held against."""


def counts(gain: Mean) -> bool:
    """Whether a gain is one."""
    return gain.low is not None and gain.low > 0 and gain.value >= MATTERS


def no_gain_in_distribution(models: Sequence[Shifts]) -> Claim:
    """Pruning for the task of training gains nothing there."""
    evidence = []
    for model in models:
        for shift in model.shifts:
            if shift.in_distribution:
                gain = masked(shift, "best").test.gain
                evidence.append(_evidence(model, shift, gain, not counts(gain), _removed(shift)))
    return judged(
        "No gain in distribution",
        "Task-aware pruning gives nothing on the distribution of training.",
        f"gain of TALE's BEST on test functions, as a share of the dense loss; a gain whose "
        f"interval lies above 0 and that is at least {MATTERS:.0%} speaks against it",
        evidence,
    )


def gain_under_shift(models: Sequence[Shifts]) -> Claim:
    """Pruning for a wider task gains there."""
    evidence = [
        _evidence(model, shift, gain, counts(gain), _removed(shift))
        for model, shift in wider(models)
        for gain in [masked(shift, "best").test.gain]
    ]
    return judged(
        "Gain under shift",
        "Out of distribution, task-aware pruning consistently helps.",
        f"gain of TALE's BEST on test functions of the shifted task; supports where its interval "
        f"lies above 0 and it is at least {MATTERS:.0%}",
        evidence,
    )


def beyond_controls(models: Sequence[Shifts]) -> Claim:
    """The gain is more than what simpler things bring."""
    evidence = []
    failed = dict.fromkeys(CONTROLS, 0)
    rescaled = 0
    for model, shift in wider(models):
        against = controls_beaten(shift)
        for name, beaten in against.items():
            failed[name] += not beaten
        rescaled += counts(shift.saturation.scaled_beyond_scale.gain)
        lost = [CONTROLS[name] for name, beaten in against.items() if not beaten]
        gain = shift.saturation.best_beyond_scale.gain
        remark = f"not better than {', '.join(lost)}" if lost else ""
        evidence.append(_evidence(model, shift, gain, not lost, remark))
    return judged(
        "More than the controls",
        "The gain under shift comes from the layers that are removed: neither the best single "
        "layer, nor random masks, nor a rescaled output gives as much.",
        "gain over the dense model with its output rescaled by one factor; supports where this "
        "gain counts and BEST has a lower test loss than the best single removal (unless it is "
        "one), than the best of as many random masks as TALE tried, and than 95% of random masks",
        evidence,
        {f"cells not better than {CONTROLS[name]}": float(n) for name, n in failed.items()}
        | {"cells that gain where both outputs are rescaled": float(rescaled)},
    )


def controls_beaten(shift: Shift) -> dict[str, bool]:
    """Control -> whether BEST does better on the test functions."""
    best = masked(shift, "best")
    found = {"rescaling": counts(shift.saturation.best_beyond_scale.gain)}
    if best.mask.num_blocks > 1:
        found["single"] = _loss(best) < _loss(masked(shift, "single"))
    rival = next((m for m in shift.masks if m.name == "random_best"), None)
    # Where random search finds the same mask, that mask is no worse for it.
    found["random_best"] = rival is not None and _loss(best) <= _loss(rival)
    better = shift.random_better
    found["random"] = better is not None and better <= CHANCE
    return found


def wider(models: Sequence[Shifts]) -> Iterator[tuple[Shifts, Shift]]:
    """The tasks that are wider than training, or whose x are drawn from elsewhere."""
    for model in models:
        own = trained_task(model)
        yield from ((model, s) for s in model.shifts if s.sigma > own.sigma or _other_x(s, own))


def narrower(models: Sequence[Shifts]) -> Iterator[tuple[Shifts, Shift]]:
    """The tasks that are narrower than training, with the same x."""
    for model in models:
        own = trained_task(model)
        yield from (
            (model, s) for s in model.shifts if s.sigma < own.sigma and not _other_x(s, own)
        )


def trained_task(model: Shifts) -> Shift:
    """The task of training."""
    return next(s for s in model.shifts if s.in_distribution)


def _other_x(shift: Shift, own: Shift) -> bool:
    return bool(shift.family["inputs"] != own.family["inputs"])


def helped(models: Sequence[Shifts], geometries: Sequence[Placed]) -> list[Placed]:
    """The geometries on wider tasks where removing BEST saves enough to be explained."""
    tasks = {(model.model, s.task) for model, s in wider(models)}
    chosen = of_best(models, geometries)
    return [p for p in chosen if (p.model, p.task) in tasks and (p.saved or 0.0) >= MATTERS]


def masked(shift: Shift, name: str) -> Measured:
    """A mask of a shift by name."""
    return next(m for m in shift.masks if m.name == name)


def _loss(measured: Measured) -> float:
    found: Compared = measured.test
    return found.loss.value


def _removed(shift: Shift) -> str:
    mask = masked(shift, "best").mask
    if mask:
        return f"removes {mask}"
    return f"removes nothing; the best single removal gains {masked(shift, 'single').test.gain}"


def _evidence(
    model: Shifts, shift: Shift, value: Mean, supports: bool, remark: str = ""
) -> Evidence:
    return Evidence(
        model=model.model,
        task=shift.task,
        value=value.value,
        low=value.low,
        high=value.high,
        supports=supports,
        remark=remark,
    )
