"""Made-up geometries with plausible numbers, for tests and examples of reports."""

from collections.abc import Sequence
from math import exp, log

import numpy as np

from shoal.core.mask import Mask
from shoal.core.plan import ModelRef
from shoal.core.records import Mean
from shoal.geometry.records import (
    Change,
    Distribution,
    Gaps,
    Geometry,
    Intervention,
    Linear,
    Point,
    Profile,
    Signature,
)

PARTS = ("profiles", "changes", "linear", "signatures", "points")
"""The parts of a geometry that may be missing."""


def made_up_geometry(
    seed: int = 0,
    *,
    parts: Sequence[str] = PARTS,
    depth: int = 12,
    sequences: int = 64,
    classes: Sequence[str] = ("x", "y"),
    plan: bool = True,
    mask: Mask | None = None,
    singles: bool = True,
) -> Geometry:
    """A geometry of a model that was never run.

    Args:
        seed: Seed of the numbers.
        parts: Which of `PARTS` are there; the others are empty.
        depth: Blocks of the model, at least 1.
        sequences: Sequences and examples behind each mean; with one there are no intervals.
        classes: Classes of positions that have surrogates of their own.
        plan: Whether there is a plan.
        mask: What it removes; by default a quarter of the blocks, in the middle.
        singles: Whether single blocks were removed too.
    """
    if mask is None and plan:
        mask = Mask.of(depth, range(depth // 2, depth // 2 + max(1, depth // 4)))
    made = _Maker(seed, depth, sequences, mask if plan else None)
    linear = made.linear(classes)
    return Geometry(
        model=ModelRef(id="lab-small-0", fingerprint="0123456789abcdef"),
        depth=depth,
        width=64,
        id="U(-1, 1)",
        ood="U(-4, 4)",
        metric={"id": "squared error", "ood": "squared error"},
        mask=made.mask,
        settings={
            "sequences": sequences,
            "ridges": [1e-6, 1e-3, 0.1],
            "threshold": 0.9,
            "interventions": {"alphas": [0.0, 0.5, 1.0], "masks": 3},
        },
        profiles=made.profiles() if "profiles" in parts else {},
        changes=made.changes() if "changes" in parts else {},
        linear=linear if "linear" in parts else (),
        signatures=made.signatures(linear) if "signatures" in parts else (),
        points=made.points(singles) if "points" in parts else (),
        notes=("3 control masks were drawn by seed 0.",),
        environment={"torch": "2.13.0", "device": "cpu"},
        seconds={"profiles": 4.25, "linear": 12.0, "points": 0.0},
        shoal_version="0",
    )


class _Maker:
    """Numbers from one generator; the same calls in the same order give the same numbers."""

    def __init__(self, seed: int, depth: int, sequences: int, mask: Mask | None) -> None:
        self.rng = np.random.default_rng(seed)
        self.depth = depth
        self.sequences = sequences
        self.mask = mask
        self.layers = frozenset(s.layer for s in mask or ())

    def mean(self, value: float, half: float) -> Mean:
        """A mean with an interval of a width."""
        if self.sequences < 2:
            return Mean(value=value, low=None, high=None, count=self.sequences)
        return Mean(value=value, low=value - half, high=value + half, count=self.sequences)

    def near(self, value: float, spread: float = 0.05) -> Mean:
        """A mean near a value, with an interval in proportion to it."""
        value *= float(self.rng.lognormal(0.0, spread / 3))
        return self.mean(value, spread * abs(value))

    def profiles(self) -> dict[str, Profile]:
        """States that grow with depth; more so on OOD, and less when pruned."""
        sides = {"id": 0.0, "ood": 1.1}
        if self.mask is not None:
            sides |= {"id_pruned": -0.2, "ood_pruned": 0.55}
        return {name: self._profile(shift) for name, shift in sides.items()}

    def _profile(self, shift: float) -> Profile:
        x = [i / self.depth for i in range(self.depth + 1)]
        norm = [3 * exp(2.6 * at + shift * at) for at in x]
        distance = [2 * exp(1.8 * at + 1.4 * shift * at) for at in x]
        cosine = [0.5 * exp(-0.6 * at + 0.3 * shift * at) for at in x]
        lone = self.sequences < 2
        return Profile(
            norm=tuple(map(self.near, norm)),
            distance=tuple(map(self.near, distance)),
            cosine=tuple(map(self.near, cosine)),
            last_norm=tuple(map(self.near, norm)),
            last_distance=() if lone else tuple(self.near(1.2 * v).value for v in distance),
            last_cosine=() if lone else tuple(self.near(1.1 * v).value for v in cosine),
        )

    def changes(self) -> dict[str, Change]:
        """A gap that closes, one that widens, and others that are not settled."""
        if self.mask is None:
            return {}
        after = {"norm": 0.61, "distance": 0.31, "cosine": 0.19, "last_norm": 0.5}
        before = {"norm": 0.53, "distance": 0.72, "cosine": 0.2, "last_norm": 0.54}
        if self.sequences > 1:
            after |= {"last_distance": 0.35, "last_cosine": 0.16}
            before |= {"last_distance": 0.74, "last_cosine": 0.17}
        return {
            kind: Change(
                before=before[kind],
                after=after[kind],
                change=self.mean(after[kind] - before[kind], 0.05),
            )
            for kind in before
        }

    def linear(self, classes: Sequence[str]) -> tuple[Linear, ...]:
        """Blocks that stretch OOD states in few directions where the plan removes them."""
        sides: tuple[Distribution, ...] = ("id", "ood")
        return tuple(
            self._linear(layer, name, side)
            for name in classes
            for layer in range(self.depth)
            for side in sides
        )

    def _linear(self, layer: int, positions: str, side: Distribution) -> Linear:
        strong = side == "ood" and layer in self.layers
        gain = (1.5 if strong else 1.15) * float(self.rng.lognormal(0, 0.06))
        rank = (7.0 if strong else 17.0) * float(self.rng.lognormal(0, 0.15))
        r2 = 1 - (0.05 if side == "id" else 0.08) * float(self.rng.lognormal(0, 0.5))
        return Linear(
            layer=layer,
            positions=positions,
            distribution=side,
            tokens=4096,
            ridge=1e-3,
            r2=r2,
            r2_update=1 - 6 * (1 - r2),
            accepted=r2 >= 0.9,
            measured_gain=gain,
            data_gain=0.97 * gain,
            sigma_max=2.3 * gain,
            frobenius=1.02 * gain,
            effective_rank=2 * rank,
            participation_ratio=1.1 * rank,
            data_effective_rank=rank,
            data_participation_ratio=0.5 * rank,
        )

    def signatures(self, linear: Sequence[Linear]) -> tuple[Signature, ...]:
        """The signatures that follow from surrogates."""
        pairs = zip(linear[::2], linear[1::2], strict=True)
        return tuple(self._signature(one, other) for one, other in pairs)

    def _signature(self, adapted: Linear, shifted: Linear) -> Signature:
        gain = log(shifted.measured_gain / adapted.measured_gain)
        rank = log(shifted.data_effective_rank / adapted.data_effective_rank)
        known = adapted.accepted and shifted.accepted
        return Signature(
            layer=adapted.layer,
            positions=adapted.positions,
            selected=adapted.layer in self.layers,
            gain_change=gain,
            rank_change=rank,
            amplifier=gain > 0 and rank < 0 if known else None,
        )

    def points(self, singles: bool) -> tuple[Point, ...]:
        """Removal that helps under shift, controls that do not."""
        found = [self._point("dense", "-[]", "none", 1.0)]
        if singles:
            found += [self._point("removed", f"-[{i}]", str(i), 0.9) for i in range(self.depth)]
        if self.mask is None:
            return tuple(found)
        sites = {"selected": [str(self.mask)], "unselected": self._others()}
        alphas = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
        for group, masks in sites.items():
            for seed, one in enumerate(masks):
                own = None if group == "selected" else seed
                removed = self._point("removed", one, group, 0.0, seed=own)
                # Nothing of what the sites add is removal, and all of it the dense model.
                same = {0.0: removed, 1.0: found[0]}
                found.append(removed)
                found += [
                    same[a].model_copy(
                        update={
                            "intervention": "scaled",
                            "sites": one,
                            "group": group,
                            "alpha": a,
                            "seed": own,
                        }
                    )
                    if a in same
                    else self._point("scaled", one, group, a, alpha=a, seed=own)
                    for a in alphas
                ]
        for ridge, at in ((1e-6, 0.3), (1e-3, 0.12), (0.1, 0.6)):
            found.append(
                self._point("inverse", sites["selected"][0], "selected", at, ridge=ridge, r2=0.947)
            )
        kinds: tuple[tuple[Intervention, float], ...] = (("random", 4.0), ("rotated", 1.6))
        for kind, at in kinds:
            found += [
                self._point(
                    kind, sites["selected"][0], "selected", at, ridge=1e-3, seed=s, r2=0.947
                )
                for s in (0, 1, 2)
            ]
        return tuple(found)

    def _others(self) -> list[str]:
        free = [i for i in range(self.depth) if i not in self.layers]
        many = len(self.layers)
        starts = [i for i in (0, 1, 2) if len(free) >= i + many]
        return [str(Mask.of(self.depth, free[i : i + many])) for i in starts]

    def _point(
        self,
        kind: Intervention,
        sites: str,
        group: str,
        at: float,
        *,
        alpha: float | None = None,
        ridge: float | None = None,
        seed: int | None = None,
        r2: float | None = None,
    ) -> Point:
        """The model with so much of what the sites do: 1 is all, 0 nothing."""
        helps = group in ("selected", "none") or group.isdigit()
        ood = 1.2 * exp(0.9 * at) if helps else 2.95 * exp(0.6 * (at - 1) ** 2)
        norm = 0.35 + 0.2 * at if helps else 0.55 + 0.1 * abs(at - 1)
        lone = self.sequences < 2
        return Point(
            intervention=kind,
            sites=sites,
            group=group,
            alpha=alpha,
            ridge=ridge,
            seed=seed,
            r2=r2,
            loss_id=self.near(0.01 * exp(1.2 * (at - 1) ** 2), 0.08),
            loss_ood=self.near(ood, 0.08),
            gaps=Gaps(
                norm=norm,
                distance=1.4 * norm,
                cosine=0.2,
                last_norm=0.9 * norm,
                last_distance=None if lone else 1.3 * norm,
                last_cosine=None if lone else 0.17,
            ),
        )
