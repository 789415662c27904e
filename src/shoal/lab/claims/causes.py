"""Claims about causes: the alpha curve, and undoing a layer by an inverse surrogate."""

from collections.abc import Sequence

from shoal.geometry.records import Point
from shoal.lab.claims.judging import judged, rank_correlation
from shoal.lab.study import Claim, Evidence, Placed

MONOTONE = 0.9
"""Rank correlation of alpha and loss from which a curve counts as monotone."""

MOSTLY = 0.5
"""Share of the gain that counts as most of it."""


def monotone(geometries: Sequence[Placed]) -> Claim:
    """The less the selected layers add, the lower the loss."""
    evidence = []
    for placed in geometries:
        curve = [
            (p.alpha, p.loss_ood.value)
            for p in placed.geometry.points
            if p.intervention == "scaled"
            and p.group == "selected"
            and p.alpha is not None
            and p.alpha <= 1
        ]
        if len(curve) < 3:
            continue
        alphas, losses = zip(*curve, strict=True)
        rho = rank_correlation(curve)
        least = alphas[losses.index(min(losses))]
        evidence.append(
            Evidence(
                model=placed.model,
                task=placed.task,
                value=rho,
                supports=rho >= MONOTONE,
                remark=f"least loss at alpha {least:g}",
            )
        )
    return judged(
        "Monotone in alpha",
        "Scaling down what the selected layers add lowers the shifted loss step by step.",
        f"Spearman correlation of alpha (0 to 1) and the shifted loss; supports from {MONOTONE:g}",
        evidence,
    )


def inverse_restores(geometries: Sequence[Placed]) -> Claim:
    """Keeping the layers and undoing them linearly recovers most of the gain."""
    evidence = []
    for placed in geometries:
        points = placed.geometry.points
        inverses = [p for p in points if p.intervention == "inverse"]
        if not inverses:
            continue
        share = recovered(points, inverses)
        controls = {
            kind: recovered(points, [p for p in points if p.intervention == kind])
            for kind in ("random", "rotated")
        }
        lost = [kind for kind, value in controls.items() if value >= min(share, MOSTLY)]
        r2 = min((p.r2 for p in inverses if p.r2 is not None), default=float("nan"))
        told = ", ".join(f"{kind} {value:.0%}" for kind, value in controls.items())
        evidence.append(
            Evidence(
                model=placed.model,
                task=placed.task,
                value=share,
                supports=share >= MOSTLY and not lost,
                remark=f"least R^2 {r2:.3f}; {told}",
            )
        )
    return judged(
        "Inverse surrogate restores",
        "Applying the inverse of a layer's linear surrogate behind it recovers most of the gain "
        "of removing it.",
        f"share of the gain that the best inverse recovers; supports from {MOSTLY:.0%}, where the "
        "random maps recover less than that and less than the inverse. The best of several ridges "
        "and of several seeds is taken, for controls too",
        evidence,
    )


def recovered(points: Sequence[Point], tried: Sequence[Point]) -> float:
    """Share of the removal's gain in shifted loss that the best of some points recovers."""
    dense = next(p for p in points if p.intervention == "dense").loss_ood.value
    removed = next(
        p for p in points if p.intervention == "removed" and p.group == "selected"
    ).loss_ood.value
    best = min((p.loss_ood.value for p in tried), default=float("inf"))
    return (dense - best) / (dense - removed)
