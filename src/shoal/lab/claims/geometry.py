"""Claims about geometry: realignment, amplifiers, and what the reverse shift does."""

from collections.abc import Iterable, Sequence
from math import exp, inf, isfinite, log, nan

import numpy as np

from shoal.core.records import Mean
from shoal.geometry.records import Geometry, Signature
from shoal.lab.claims.gains import counts, masked, narrower
from shoal.lab.claims.judging import judged, rank_correlation
from shoal.lab.records import Shift, Shifts
from shoal.lab.study import Claim, Evidence, Placed

KINDS = ("norm", "distance")
"""The profiles that the paper speaks of."""

RESAMPLES = 10_000


def realignment(geometries: Sequence[Placed]) -> Claim:
    """Pruning moves the profiles of shifted inputs back to those of training."""
    evidence = []
    for placed in geometries:
        changes = placed.geometry.changes
        closer = {kind: _closer(changes[kind].change) for kind in KINDS}
        missing = [kind for kind, is_closer in closer.items() if not is_closer]
        change = changes["distance"]
        evidence.append(
            _evidence(
                placed,
                change.change,
                not missing,
                f"gap {change.before:.3g} -> {change.after:.3g}"
                + (f"; not closer: {', '.join(missing)}" if missing else ""),
            )
        )
    return judged(
        "Realignment",
        "Under shift, pruning moves the per-layer profiles of norms and of pairwise distances back "
        "to those of the distribution of training.",
        "change of the gap between the pairwise-distance profiles; supports where it and that of "
        "the norm profiles are below 0 with their whole intervals",
        evidence,
    )


def realignment_is_theirs(geometries: Sequence[Placed]) -> Claim:
    """The selected layers realign more than others do."""
    evidence, relations = [], []
    for placed in geometries:
        points = [p for p in placed.geometry.points if p.intervention == "removed"]
        selected = [p.gaps.distance for p in points if p.group == "selected"]
        controls = [p.gaps.distance for p in points if p.group == "unselected"]
        if not selected or not controls:
            continue
        relations += relation_of_gap_and_loss(placed)
        evidence.append(
            Evidence(
                model=placed.model,
                task=placed.task,
                value=selected[0] - float(np.mean(controls)),
                supports=selected[0] < min(controls),
                remark=f"gap {selected[0]:.3g}, others {', '.join(f'{c:.3g}' for c in controls)}",
            )
        )
    facts = {}
    if relations:
        facts["mean rank correlation of gap and loss over single removals"] = _mean(relations)
        facts["share of these correlations above 0"] = float(np.mean(np.array(relations) > 0))
    return judged(
        "Realignment is theirs",
        "What realigns is the removal of the selected layers, not that of any layers.",
        "gap of distance profiles after removing the selected layers less the mean after removing "
        "as many others at random; supports where every such control leaves a larger gap",
        evidence,
        facts,
    )


def relation_of_gap_and_loss(placed: Placed) -> list[float]:
    """Rank correlation of gap and shifted loss over removals of single blocks; [] for too few."""
    single = [
        (p.gaps.distance, p.loss_ood.value)
        for p in placed.geometry.points
        if p.intervention == "removed" and p.group.isdecimal()
    ]
    if len(single) < 4:
        return []
    rho = rank_correlation(single)
    return [rho] if isfinite(rho) else []


def amplifiers(geometries: Sequence[Placed]) -> Claim:
    """The selected layers are high-gain, low-rank on shifted inputs."""
    evidence, selected, others = [], [], []
    for placed in geometries:
        known = [s for s in placed.geometry.signatures if s.amplifier is not None]
        mine = [s for s in known if s.selected]
        rest = [s for s in known if not s.selected]
        if not mine or not rest:
            continue
        selected += mine
        others += rest
        share, base = _share(mine), _share(rest)
        evidence.append(
            Evidence(
                model=placed.model,
                task=placed.task,
                value=share - base,
                supports=share > base and share >= 0.5,
                remark=f"selected {share:.0%}, others {base:.0%}",
            )
        )
    facts = {}
    if selected and others:
        facts = {
            "share of selected that are amplifiers": _share(selected),
            "share of others": _share(others),
            "mean gain change, selected (ratio)": exp(_mean(s.gain_change for s in selected)),
            "mean gain change, others (ratio)": exp(_mean(s.gain_change for s in others)),
            "mean rank change, selected (ratio)": exp(_mean(s.rank_change for s in selected)),
            "mean rank change, others (ratio)": exp(_mean(s.rank_change for s in others)),
            "p of the difference in shares (layers as independent)": _p_value(selected, others),
        }
    return judged(
        "Amplifier signature",
        "The layers that are selected have a higher gain and a lower rank on shifted inputs than "
        "on those of training.",
        "share of amplifiers (gain up, rank down) among the selected layers less that among the "
        "others; supports where it is above 0 and at least half of the selected are amplifiers",
        evidence,
        facts,
    )


def reverse_expands(models: Sequence[Shifts], geometries: Sequence[Placed]) -> Claim:
    """Where the test is narrower than training, pruning helps and raises distances."""
    placed = {(p.model, p.task): p for p in geometries}
    evidence = [
        _reverse(model, shift, placed.get((model.model, shift.task)))
        for model, shift in narrower(models)
    ]
    return judged(
        "Reverse shift expands",
        "A model trained on a wide range and tested on a narrow one is helped by removing layers, "
        "and this expands distances: what pruning does is to align, not to contract.",
        "gain of BEST on test functions; supports where that counts, distances grow on the mean "
        "over depths, and the gap of the distance profiles shrinks with its whole interval. Where "
        "TALE removes nothing, the remark tells what the best single removal does",
        evidence,
    )


def _reverse(model: Shifts, shift: Shift, placed: Placed | None) -> Evidence:
    best = shift.selection.best
    name = "best" if best else "single"
    gain = masked(shift, name).test.gain
    remark = f"removes {best}" if best else f"removes nothing; the best single gains {gain}"
    aligned = False
    if placed is not None and placed.geometry.changes:
        grown = growth(placed.geometry)
        change = placed.geometry.changes["distance"]
        aligned = grown > 0 and _closer(change.change)
        remark += (
            f"; distances times {np.exp(grown):.3g}, gap {change.before:.3g} -> {change.after:.3g}"
        )
    own = masked(shift, "best").test.gain
    return Evidence(
        model=model.model,
        task=shift.task,
        value=own.value,
        low=own.low,
        high=own.high,
        supports=bool(best) and counts(own) and aligned,
        remark=remark,
    )


def growth(geometry: Geometry) -> float:
    """Mean over depths of the log ratio of shifted distances, pruned over dense."""
    before, after = (geometry.profiles[n].distance[1:] for n in ("ood", "ood_pruned"))
    ratios = [
        log(a.value / b.value)
        for a, b in zip(after, before, strict=True)
        if 0 < a.value < inf and 0 < b.value < inf
    ]
    return float(np.mean(ratios)) if ratios else nan


def _closer(change: Mean) -> bool:
    return change.high is not None and change.high < 0


def _share(signatures: Sequence[Signature]) -> float:
    return float(np.mean([bool(s.amplifier) for s in signatures]))


def _mean(values: Iterable[float]) -> float:
    known = [v for v in values if isfinite(v)]
    return float(np.mean(known)) if known else nan


def _p_value(selected: Sequence[Signature], others: Sequence[Signature]) -> float:
    """One-sided permutation test of the difference in shares; signatures count as independent."""
    flags = np.array([bool(s.amplifier) for s in (*selected, *others)])
    count = len(selected)
    observed = flags[:count].mean() - flags[count:].mean()
    rng = np.random.default_rng(0)
    drawn = np.array([rng.permutation(flags) for _ in range(RESAMPLES)])
    differences = drawn[:, :count].mean(1) - drawn[:, count:].mean(1)
    return float((1 + (differences >= observed - 1e-12).sum()) / (RESAMPLES + 1))


def _evidence(placed: Placed, value: Mean, supports: bool, remark: str) -> Evidence:
    return Evidence(
        model=placed.model,
        task=placed.task,
        value=value.value,
        low=value.low,
        high=value.high,
        supports=supports,
        remark=remark,
    )
