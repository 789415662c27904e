"""The numbers of the geometry of a lab run as tables."""

from collections.abc import Sequence

from shoal.lab.study import Placed
from shoal.report.lab.alphas import loss_curves
from shoal.report.lab.gaps import result
from shoal.report.lab.inverses import Undone
from shoal.report.lab.reading import dense_point, points_of
from shoal.report.lab.signatures import counted
from shoal.report.lab.words import share
from shoal.report.page import Table
from shoal.report.words import mean, number

KINDS = {
    "norm": "norms",
    "distance": "distances",
    "cosine": "cosine distances",
    "last_norm": "norms, last states",
    "last_distance": "distances, last states",
    "last_cosine": "cosine distances, last states",
}


def gaps_table(geometries: Sequence[Placed]) -> Table:
    """One row per model, task and kind of profile."""
    rows = [
        [
            p.model,
            p.task,
            KINDS.get(kind, kind),
            number(change.before),
            number(change.after),
            mean(change.change),
            result(change),
        ]
        for p in geometries
        for kind, change in p.geometry.changes.items()
    ]
    header = ["model", "task", "profile", "dense", "pruned", "change", "result"]
    return Table(header, rows, "Gaps to the profile of training", numbers=False)


def signatures_table(geometries: Sequence[Placed]) -> Table:
    """Amplifiers among the selected and the other blocks, one row per model and task."""
    rows = []
    for p in geometries:
        if not p.geometry.mask or not p.geometry.signatures:
            continue
        mine = counted(p.geometry.signatures, selected=True)
        rest = counted(p.geometry.signatures, selected=False)
        rejected = sum(s.amplifier is None for s in p.geometry.signatures)
        rows.append(
            [
                f"{p.model}, {p.task}",
                str(p.geometry.mask),
                _share(mine),
                _share(rest),
                str(rejected),
            ]
        )
    header = ["model, task", "removed", "selected", "others", "not judged"]
    caption = "Amplifiers among blocks (each once per class of positions)"
    return Table(header, rows, caption)


def _share(found: tuple[int, int]) -> str:
    return f"{found[0]} of {found[1]}" + (f"\n{share(found[0] / found[1])}" if found[1] else "")


def alphas_table(geometries: Sequence[Placed]) -> Table:
    """Loss over that of the dense model at some alphas, and the alpha of the least loss."""
    rows = []
    for p in geometries:
        curves = loss_curves([p])
        for own in curves["selected"]:
            values = dict(own)
            least = min(own, key=lambda pair: pair[1] if pair[1] == pair[1] else float("inf"))
            rest = [dict(curve) for curve in curves["unselected"]]
            rows.append(
                [
                    f"{p.model}, {p.task}",
                    *(number(values.get(alpha)) for alpha in (0.0, 0.5, 1.5)),
                    f"{least[0]:g}",
                    number(least[1]),
                    ", ".join(number(curve.get(0.0)) for curve in rest) or "–",
                ]
            )
    header = ["model, task", "α 0", "α 0.5", "α 1.5", "least at α", "least", "other blocks, α 0"]
    return Table(header, rows, "Shifted loss over that of the dense model")


def inverses_table(rows: Sequence[Undone]) -> Table:
    """Share of the removal's gain that each kind of map recovers."""
    header = ["model, task", "gain of removal", "inverse", "random map", "turned", "least R²"]
    cells = [
        [
            f"{one.placed.model}, {one.placed.task}",
            share(one.gain),
            *(share(one.best(kind)) for kind in ("inverse", "random", "rotated")),
            number(one.r2),
        ]
        for one in rows
    ]
    return Table(header, cells, "Share of the gain that comes back; the best try of each kind")


def in_distribution_table(geometries: Sequence[Placed]) -> Table:
    """What removal does on both tasks, on the functions of the geometry."""
    rows = []
    for p in geometries:
        dense = dense_point(p)
        for removed in points_of(p, "removed", "selected"):
            if dense is not None:
                rows.append(
                    [
                        f"{p.model}, {p.task}",
                        *(mean(m).replace(" [", "\n[") for m in (dense.loss_ood, removed.loss_ood)),
                        *(mean(m).replace(" [", "\n[") for m in (dense.loss_id, removed.loss_id)),
                    ]
                )
    header = ["model, task", "shifted, dense", "shifted, removed", "training, dense"]
    return Table([*header, "training, removed"], rows, "Losses on the functions of the geometry")
