"""What the numbers say, in sentences that claim no more than their intervals show."""

from math import exp, isfinite, isnan

from shoal.core.records import Mean
from shoal.geometry.records import Change, Geometry, Signature
from shoal.report.geometry.gaps import direction, known_changes
from shoal.report.geometry.marks import class_title, classes, log_ratio, profile_ends
from shoal.report.geometry.points import (
    best,
    courses,
    dense_point,
    inverse_groups,
    of_kind,
    removed_point,
    singles,
)
from shoal.report.words import interval, mean, number

PROFILES = {
    "norm": "norm profile",
    "distance": "distance profile",
    "cosine": "cosine profile",
    "last_norm": "norm profile of the last position",
    "last_distance": "distance profile of the last position",
    "last_cosine": "cosine profile of the last position",
}


def reading(found: Geometry) -> list[str]:
    """Sentences on what was measured, in the order of the page."""
    lines = [_shift(found)]
    lines += [_change(PROFILES.get(k, k), c) for k, c in known_changes(found.changes).items()]
    lines += [_surrogates(found), *_signatures(found)]
    lines += [_removal(found, side) for side in ("ood", "id")]
    lines += [_controls(found), _single(found), _scaling(found)]
    lines += [_inverse(found, group) for group in inverse_groups(found.points)]
    return [line for line in lines if line]


def _shift(found: Geometry) -> str:
    """How many times as long, and as far apart, OOD states are; described, not claimed."""
    parts = []
    for kind, what in (("norm", "long"), ("distance", "far apart")):
        ratios = [_mean_ratio(found, side, kind) for side in ("ood", "ood_pruned")]
        if ratios[0] is not None:
            pruned = "" if ratios[1] is None else f" ({number(ratios[1])} times when pruned)"
            parts.append(f"{number(ratios[0])} times as {what}{pruned}")
    if not parts:
        return ""
    return (
        f"On OOD, states of the dense model are {' and '.join(parts)} as on ID: geometric mean "
        "over depths, which describes and has no interval."
    )


def _mean_ratio(found: Geometry, side: str, kind: str) -> float | None:
    if side not in found.profiles or "id" not in found.profiles:
        return None
    values, base = (profile_ends(found.profiles[s], kind)[0][1:] for s in (side, "id"))
    logs = [log_ratio(*pair) for pair in zip(values, base, strict=False)]
    known = [v for v in logs if isfinite(v)]
    # A mean over some depths alone would not be that of the profile.
    return exp(sum(known) / len(known)) if known and len(known) == len(logs) else None


def _change(profile: str, change: Change) -> str:
    found = change.change
    numbers = f"gap {number(change.before)} → {number(change.after)}, change {mean(found)}"
    if isnan(found.value):
        return f"Whether pruning brings the OOD {profile} closer to ID cannot be told: {numbers}."
    towards = direction(found)
    if towards < 0:
        return f"On OOD, the pruned model's {profile} is closer to the ID profile: {numbers}."
    if towards > 0:
        return (
            f"On OOD, the pruned model's {profile} is not closer to the ID profile, but farther "
            f"from it: {numbers}."
        )
    why = "there is no interval" if found.low is None else "the interval holds 0"
    return (
        f"Whether pruning brings the OOD {profile} closer to ID is not settled: {numbers}; {why}."
    )


def _surrogates(found: Geometry) -> str:
    if not found.linear:
        return ""
    kept = sum(r.accepted for r in found.linear)
    return (
        f"{kept} of {len(found.linear)} linear surrogates reach the threshold of held-out R²; "
        "ranks of the others say little."
    )


def _signatures(found: Geometry) -> list[str]:
    lines = []
    for name in classes(s.positions for s in found.signatures):
        own = [s for s in found.signatures if s.positions == name]
        chosen, others = ([s for s in own if s.selected is yes] for yes in (True, False))
        text = " and ".join(
            f"{_amplifiers(part)} of the {len(part)} blocks that {what}{_undecided(part)}"
            for part, what in ((chosen, "the plan removes"), (others, "stay"))
            if part
        )
        lines.append(
            f"Amplifiers of OOD inputs, {class_title(name).lower()} (gain up, rank down): {text}. "
            "These are counts, not a test."
        )
    return lines


def _amplifiers(rows: list[Signature]) -> int:
    return sum(s.amplifier is True for s in rows)


def _undecided(rows: list[Signature]) -> str:
    count = sum(s.amplifier is None for s in rows)
    return f" ({count} undecided)" if count else ""


def apart(one: Mean, other: Mean) -> int:
    """-1 where the first's interval lies below the other's, 1 above, 0 where that is not shown."""
    ends = (one.low, one.high, other.low, other.high)
    if any(e is None or isnan(e) for e in ends):
        return 0
    low, high, other_low, other_high = (e for e in ends if e is not None)
    return -1 if high < other_low else 1 if low > other_high else 0


def _removal(found: Geometry, side: str) -> str:
    dense, pruned = dense_point(found.points), removed_point(found.points)
    if dense is None or pruned is None:
        return ""
    before, after = (dense.loss_ood, pruned.loss_ood)
    if side == "id":
        before, after = (dense.loss_id, pruned.loss_id)
    numbers = f"{mean(before)} → {mean(after)}"
    towards = apart(after, before)
    if towards:
        verb = "lowers" if towards < 0 else "raises"
        return f"Removing {pruned.sites} {verb} the {side.upper()} loss: {numbers}."
    lone = before.low is None or after.low is None
    why = "there is no interval" if lone else "the two intervals are not apart"
    return (
        f"Whether removing {pruned.sites} changes the {side.upper()} loss is not settled: "
        f"{numbers}; {why}."
    )


def _controls(found: Geometry) -> str:
    pruned, others = removed_point(found.points), of_kind(found.points, "removed", "unselected")
    if pruned is None or not others:
        return ""
    values = [p.loss_ood.value for p in others]
    as_low = sum(v <= pruned.loss_ood.value for v in values)
    return (
        f"{as_low} of {len(others)} random sets of as many other sites leave an OOD loss as low as "
        f"the plan's ({_range(values)} against {number(pruned.loss_ood.value)})."
    )


def _single(found: Geometry) -> str:
    alone = singles(found.points)
    lowest = best(alone)
    if lowest is None:
        return ""
    return (
        f"The best of {len(alone)} single blocks to remove is {lowest.group}, with an OOD loss of "
        f"{mean(lowest.loss_ood)}; it was picked by these same numbers."
    )


def _scaling(found: Geometry) -> str:
    course = next((c for c in courses(found.points) if c.group == "selected"), None)
    if course is None:
        return ""
    known = [p.loss_ood.value for p in course.points if not isnan(p.loss_ood.value)]
    if not known:
        return ""
    at = next(i for i, p in enumerate(course.points) if p.loss_ood.value == min(known))
    text = (
        f"Of {len(course.alphas)} scales of what the selected sites add, "
        f"α = {course.alphas[at]:g} has the lowest OOD loss: {mean(course.points[at].loss_ood)}"
    )
    dense = dense_point(found.points)
    if dense is None or course.alphas[at] == 1:
        return text + "."
    lower = apart(course.points[at].loss_ood, dense.loss_ood) < 0
    verdict = "below" if lower else "not shown to be below"
    return f"{text}, {verdict} the dense model's ({mean(dense.loss_ood)})."


def _inverse(found: Geometry, group: str) -> str:
    inverses = of_kind(found.points, "inverse", group)
    chosen, dense = best(inverses), dense_point(found.points)
    if chosen is None:
        return ""
    sites = "the selected blocks" if group == "selected" else f"sites {chosen.sites}"
    text = f"With an inverse surrogate behind {sites}, which stay, the OOD loss is "
    text += interval(chosen.loss_ood.value, chosen.loss_ood.low, chosen.loss_ood.high)
    if len(inverses) > 1:
        text += f" at the best of {len(inverses)} ridges"
    text += "" if chosen.r2 is None else f" (R² {number(chosen.r2)})"
    if dense is not None:
        words = {-1: "below", 1: "above", 0: "not shown to differ from"}
        text += f", {words[apart(chosen.loss_ood, dense.loss_ood)]} the dense model's "
        text += f"({mean(dense.loss_ood)})"
    for kind, what in (("random", "random maps"), ("rotated", "rotated inverses")):
        values = [p.loss_ood.value for p in of_kind(found.points, kind, group)]
        text += f"; {what}: {_range(values)}" if values else ""
    return text + "."


def _range(values: list[float]) -> str:
    known = [v for v in values if not isnan(v)]
    if not known:
        return "no number"
    low, high = number(min(known)), number(max(known))
    return low if low == high else f"{low} to {high}"
