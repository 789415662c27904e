"""A geometry as tables on the console, within 100 columns."""

from collections.abc import Iterable, Sequence

from shoal.cli.screen import out, table
from shoal.core.records import Mean
from shoal.geometry.records import Change, Geometry, Linear, Point, Signature
from shoal.report.words import interval, number

PROFILES = {
    "norm": "norm",
    "distance": "distance",
    "cosine": "cosine distance",
    "last_norm": "norm, last position",
    "last_distance": "distance, last positions",
    "last_cosine": "cosine distance, last positions",
}

SHOWN = 24
"""Blocks of a table beyond which only those stand there that the plan removes."""


def print_geometry(geometry: Geometry) -> None:
    """Print how far the tasks are apart, which blocks amplify, and what interventions do."""
    removed = "" if geometry.mask is None else f", {geometry.mask}"
    out.print(
        f"{geometry.model.id}{removed}: {geometry.id} (ID) and {geometry.ood} (OOD)",
        markup=False,
        soft_wrap=True,
    )
    if geometry.changes:
        table(
            "Gap of the OOD profile to the ID profile of the dense model",
            ["profile", "dense", "pruned", "change [95% interval]"],
            [_change(name, change) for name, change in geometry.changes.items()],
            numbers=True,
        )
    if geometry.profiles:
        _print_ends(geometry)
    if geometry.signatures:
        _print_blocks(geometry)
    if geometry.points:
        _print_points(geometry)


def _change(name: str, change: Change) -> list[str]:
    numbers = (number(change.before), number(change.after))
    return [PROFILES.get(name, name), *numbers, _mean(change.change)]


def _print_ends(geometry: Geometry) -> None:
    """The profiles at their ends and in the middle."""
    depths = sorted({0, geometry.depth // 2, geometry.depth})
    rows = []
    for name, profile in geometry.profiles.items():
        for kind, means in (("norm", profile.norm), ("distance", profile.distance)):
            values = [number(means[depth].value) for depth in depths]
            rows.append([f"{name.replace('_', ', ').upper().replace('PRUNED', 'pruned')}", kind])
            rows[-1] += values
    header = ["profile", "of", *(f"depth {depth}" for depth in depths)]
    table("Hidden states", header, rows)


def _print_blocks(geometry: Geometry) -> None:
    found = {(one.distribution, one.layer, one.positions): one for one in geometry.linear}
    shown = geometry.signatures
    title = "Blocks, OOD against ID (* removed by the plan)"
    if len(shown) > SHOWN and any(one.selected for one in shown):
        shown = tuple(one for one in shown if one.selected)
        title = f"Blocks that the plan removes, of {geometry.depth}; all are in geometry.json"
    header = [
        "block",
        "R² ID",
        "R² OOD",
        "gain ID",
        "gain OOD",
        "rank ID",
        "rank OOD",
        "amplifier",
    ]
    rows = [
        _block(
            one,
            found["id", one.layer, one.positions],
            found["ood", one.layer, one.positions],
        )
        for one in shown
    ]
    table(title, header, rows, numbers=True)
    for group in (True, False):
        some = [one for one in geometry.signatures if one.selected is group]
        known = [one for one in some if one.amplifier is not None]
        if some:
            which = "of the blocks that the plan removes" if group else "of the others"
            out.print(
                f"{which}: {sum(bool(one.amplifier) for one in known)} of {len(known)} amplify "
                f"({len(some) - len(known)} without a surrogate that holds)",
                markup=False,
                soft_wrap=True,
            )


def _block(one: Signature, id: Linear, ood: Linear) -> list[str]:
    classed = "" if one.positions == "all" else f" {one.positions}"
    verdict = "–" if one.amplifier is None else "yes" if one.amplifier else "no"
    pairs = [
        (id.r2, ood.r2),
        (id.measured_gain, ood.measured_gain),
        (id.data_effective_rank, ood.data_effective_rank),
    ]
    cells = [number(value) for pair in pairs for value in pair]
    return [f"{one.layer}{classed}{'*' * one.selected}", *cells, verdict]


def _print_points(geometry: Geometry) -> None:
    header = ["intervention", "sites", "how", "loss ID", "loss OOD", "gap:\nnorm", "gap:\ndistance"]
    table(
        "Under interventions (* control; gaps: OOD profile to that of the dense model on ID)",
        header,
        [_point(point) for point in _shown(geometry.points)],
    )
    out.print("Scaling at control masks, and single blocks, are in geometry.json and on the page.")
    for side in ("id", "ood"):
        out.print(f"loss {side.upper()}: {geometry.metric[side]}", markup=False, soft_wrap=True)


def _shown(points: Sequence[Point]) -> Iterable[Point]:
    """What fits a screen: the ends of scaling stand there as dense and removed."""
    for point in points:
        scaled = point.intervention == "scaled"
        if scaled and (point.group != "selected" or point.alpha in (0, 1)):
            continue
        if point.group in ("none", "selected", "unselected"):
            yield point


def _point(point: Point) -> list[str]:
    control = "*" if point.group == "unselected" or point.intervention in _CONTROLS else ""
    how = {
        "alpha": point.alpha,
        "ridge": point.ridge,
        "R²": point.r2 if point.intervention == "inverse" else None,
        "seed": point.seed if control else None,
    }
    detail = ", ".join(f"{name} {number(v)}" for name, v in how.items() if v is not None)
    sites = "" if point.intervention == "dense" else point.sites
    losses = (_mean(point.loss_id), _mean(point.loss_ood))
    gaps = (number(point.gaps.norm), number(point.gaps.distance))
    cells = [cell.replace(" [", "\n[") for cell in losses]
    return [f"{point.intervention}{control}", sites, detail.replace(", ", "\n"), *cells, *gaps]


_CONTROLS = ("random", "rotated")


def _mean(mean: Mean) -> str:
    return interval(mean.value, mean.low, mean.high)
