"""Which points of the interventions belong together."""

from collections.abc import Sequence
from dataclasses import dataclass

from shoal.geometry.records import Point

Key = tuple[str, str, int | None]


def dense_point(points: Sequence[Point]) -> Point | None:
    """The model as it is."""
    return next((p for p in points if p.intervention == "dense"), None)


def of_kind(points: Sequence[Point], kind: str, group: str | None = None) -> list[Point]:
    """Points of one intervention, and of one group of sites if it is named."""
    return [p for p in points if p.intervention == kind and group in (None, p.group)]


def removed_point(points: Sequence[Point]) -> Point | None:
    """The model without the selected sites."""
    return next(iter(of_kind(points, "removed", "selected")), None)


def singles(points: Sequence[Point]) -> list[Point]:
    """Blocks removed one at a time."""
    return [p for p in of_kind(points, "removed") if p.group.isdigit()]


def inverse_groups(points: Sequence[Point]) -> list[str]:
    """Groups of sites that a map was put behind."""
    kinds = ("inverse", "random", "rotated")
    return list(dict.fromkeys(p.group for p in points if p.intervention in kinds))


def best(points: Sequence[Point]) -> Point | None:
    """The point of the lowest OOD loss; None where no loss is a number."""
    known = [p for p in points if p.loss_ood.value == p.loss_ood.value]
    return min(known, key=lambda p: p.loss_ood.value, default=None)


@dataclass(frozen=True)
class Course:
    """The same sites at every alpha.

    Attributes:
        group: Group of the sites.
        sites: The sites.
        alphas: Scales, ascending.
        points: The model at each.
    """

    group: str
    sites: str
    alphas: tuple[float, ...]
    points: tuple[Point, ...]


def courses(points: Sequence[Point]) -> list[Course]:
    """What was scaled, by sites; the ends are the dense model and the one without the sites."""
    dense = dense_point(points)
    removed = {(p.group, p.sites): p for p in of_kind(points, "removed")}
    found: dict[Key, dict[float, Point]] = {}
    for p in of_kind(points, "scaled"):
        if p.alpha is not None:
            found.setdefault((p.group, p.sites, p.seed), {})[p.alpha] = p
    for (group, sites, _), at in found.items():
        if (group, sites) in removed:
            at.setdefault(0.0, removed[group, sites])
        if dense is not None:
            at.setdefault(1.0, dense)
    return [
        Course(group, sites, tuple(sorted(at)), tuple(at[a] for a in sorted(at)))
        for (group, sites, _), at in found.items()
    ]
