"""The numbers of a geometry as tables."""

from collections.abc import Mapping, Sequence

from shoal.core.records import Mean
from shoal.geometry.records import Change, Linear, Point, Profile, Signature
from shoal.report.geometry.gaps import TOWARDS, direction, known_changes
from shoal.report.geometry.marks import KINDS, SIDES
from shoal.report.marks import plain_number
from shoal.report.page import Table
from shoal.report.words import number, stacked


def changes_table(changes: Mapping[str, Change]) -> Table:
    """One row per profile."""
    rows = [
        [
            KINDS.get(name, name),
            number(one.before),
            number(one.after),
            stacked(one.change),
            TOWARDS[direction(one.change)].label,
        ]
        for name, one in known_changes(changes).items()
    ]
    header = ["profile", "gap before", "after", "change", "which is"]
    return Table(header, rows, "Gap between the OOD and the ID profile, before and after pruning")


def profile_table(profiles: Mapping[str, Profile], kind: str) -> Table:
    """One row per depth, one column per profile."""
    sides = [name for name in SIDES if name in profiles and getattr(profiles[name], kind)]
    columns = [getattr(profiles[name], kind) for name in sides]
    depths = max(map(len, columns), default=0)
    rows = [
        [str(i), *(_cell(column[i]) if i < len(column) else "–" for column in columns)]
        for i in range(depths)
    ]
    return Table(["depth", *(SIDES[s].label for s in sides)], rows, f"{KINDS[kind]} by depth")


def _cell(value: Mean | float | None) -> str:
    return stacked(value) if isinstance(value, Mean) else number(value)


def fits_table(linear: Sequence[Linear]) -> Table:
    """How well the surrogates tell their blocks."""
    header = ["block", "positions", "task", "tokens", "ridge", "R²", "R², update", "accepted"]
    rows = [
        [
            str(r.layer),
            r.positions,
            r.distribution.upper(),
            f"{r.tokens:,}",
            number(r.ridge),
            number(r.r2),
            number(r.r2_update),
            "yes" if r.accepted else "no",
        ]
        for r in linear
    ]
    return Table(header, rows, "Linear surrogates: how well they fit held-out sequences")


def sizes_table(linear: Sequence[Linear]) -> Table:
    """What the surrogates, and the blocks, do to distances and to directions."""
    header = ["block", "positions", "task", "gain", "gain of A", "σ max", "‖A‖ / √width"]
    header += ["rank of A − I", "participation", "rank on the data", "participation"]
    rows = [
        [
            str(r.layer),
            r.positions,
            r.distribution.upper(),
            *map(number, (r.measured_gain, r.data_gain, r.sigma_max, r.frobenius)),
            *map(number, (r.effective_rank, r.participation_ratio)),
            *map(number, (r.data_effective_rank, r.data_participation_ratio)),
        ]
        for r in linear
    ]
    return Table(header, rows, "Gains and ranks; A is the surrogate's matrix")


def signatures_table(rows: Sequence[Signature], caption: str) -> Table:
    """One row per block and class of positions."""
    words = {True: "yes", False: "no", None: "undecided"}
    header = ["block", "positions", "removed", "log gain, OOD / ID", "log rank, OOD / ID"]
    cells = [
        [
            str(s.layer),
            s.positions,
            "yes" if s.selected else "",
            number(s.gain_change),
            number(s.rank_change),
            words[s.amplifier],
        ]
        for s in rows
    ]
    return Table([*header, "amplifier"], cells, caption)


def points_table(points: Sequence[Point], caption: str) -> Table:
    """One row per intervention: losses, and the gaps of its OOD profile to the dense ID profile."""
    kinds = ("norm", "distance", "cosine")
    header = ["intervention", "sites", "R²", "OOD loss", "ID loss"]
    rows = [
        [
            point_label(p),
            p.sites,
            number(p.r2),
            stacked(p.loss_ood),
            stacked(p.loss_id),
            *(number(getattr(p.gaps, kind)) for kind in kinds),
        ]
        for p in points
    ]
    return Table([*header, *(f"gap, {kind}" for kind in kinds)], rows, caption)


def last_gaps_table(points: Sequence[Point]) -> Table:
    """The gaps of the last positions, one row per intervention."""
    kinds = ("last_norm", "last_distance", "last_cosine")
    rows = [
        [point_label(p), p.sites, *(number(getattr(p.gaps, kind)) for kind in kinds)]
        for p in points
    ]
    header = ["intervention", "sites", *(f"gap, {k.removeprefix('last_')}" for k in kinds)]
    return Table(header, rows, "Gaps of the last positions to the dense model's ID profile")


def point_label(point: Point) -> str:
    """What was done, with its scale, ridge and seed; whose sites they are stands below."""
    parts: list[str] = [point.intervention]
    parts += [] if point.alpha is None else [f"α {point.alpha:g}"]
    parts += [] if point.ridge is None else [f"ridge {plain_number(point.ridge)}"]
    parts += [] if point.seed is None else [f"seed {point.seed}"]
    group = f"block {point.group}" if point.group.isdigit() else point.group
    return ", ".join(parts) + ("" if point.intervention == "dense" else f" ({group})")
