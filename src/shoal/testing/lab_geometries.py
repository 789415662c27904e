"""Made-up geometries of lab models, for tests and examples of reports."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.core.mask import Mask
from shoal.core.plan import ModelRef
from shoal.core.records import Mean
from shoal.geometry.records import Change, Gaps, Geometry, Linear, Point, Profile, Signature
from shoal.geometry.settings import ALPHAS
from shoal.lab.records import Shift, Shifts
from shoal.lab.study import Placed

WIDTH = 64


def made_up_placed(
    model: Shifts, shift: Shift, depth: int, sequences: int, *, seed: int = 0
) -> Placed:
    """The geometry of a model on a task, with the mask that was chosen for it.

    Args:
        model: The shift experiments of the model.
        shift: The task.
        depth: Blocks of the model.
        sequences: Functions behind each mean; with one there are no intervals.
        seed: Seed of the numbers.
    """
    trained = next(s for s in model.shifts if s.in_distribution)
    made = _Maker(seed, depth, sequences, shift)
    mask = shift.selection.best
    geometry = Geometry(
        model=ModelRef(id=f"lab:{model.model}", fingerprint=model.fingerprint),
        depth=depth,
        width=WIDTH,
        id=trained.task,
        ood=shift.task,
        metric={"id": "squared error", "ood": "squared error"},
        mask=mask or None,
        settings={"functions": sequences, "skip": 2, "seed": 0},
        profiles=made.profiles(bool(mask)),
        changes=made.changes() if mask else {},
        linear=made.linear(),
        signatures=made.signatures(mask),
        points=made.points(mask) if mask else (),
    )
    return Placed(
        model=model.model,
        task=shift.task,
        sigma=shift.sigma,
        trained=trained.sigma,
        geometry=geometry,
    )


class _Maker:
    """Numbers from one generator; the same calls in the same order give the same numbers."""

    def __init__(self, seed: int, depth: int, sequences: int, shift: Shift) -> None:
        self.rng = np.random.default_rng([seed, round(shift.sigma * 10)])
        self.depth, self.sequences = depth, sequences
        self.base = shift.selection.dense
        self.gain = next(m for m in shift.masks if m.name == "best").test.gain.value

    def mean(self, value: float, half: float) -> Mean:
        """A mean with an interval, which a single function has not."""
        ends = (None, None) if self.sequences < 2 else (value - half, value + half)
        return Mean(value=value, low=ends[0], high=ends[1], count=self.sequences)

    def profile(self, factor: float) -> Profile:
        """Numbers that grow with depth."""
        sizes = [factor * (1 + 0.4 * i) for i in range(self.depth + 1)]
        means = tuple(self.mean(size, 0.05 * size) for size in sizes)
        return Profile(
            norm=means,
            distance=means,
            cosine=tuple(self.mean(0.4, 0.02) for _ in sizes),
            last_norm=means,
            last_distance=tuple(sizes),
            last_cosine=(0.3,) * len(sizes),
        )

    def profiles(self, pruned: bool) -> dict[str, Profile]:
        """Shifted inputs lie further apart, and less so behind a pruned model."""
        factors = {"id": 1.0, "ood": 1.8} | (
            {"id_pruned": 0.9, "ood_pruned": 1.3} if pruned else {}
        )
        return {name: self.profile(factor) for name, factor in factors.items()}

    def changes(self) -> dict[str, Change]:
        """Gaps that mostly shrink."""
        found = {}
        for name, before in (
            ("norm", 0.5), ("distance", 0.6), ("cosine", 0.1),
            ("last_norm", 0.5), ("last_distance", 0.7), ("last_cosine", 0.2),
        ):  # fmt: skip
            change = before * float(self.rng.normal(-0.3, 0.25))
            found[name] = Change(
                before=before, after=before + change, change=self.mean(change, 0.05)
            )
        return found

    def linear(self) -> tuple[Linear, ...]:
        """Surrogates of every block on both tasks, for both classes of positions."""
        return tuple(
            Linear.model_validate(
                {
                    "layer": layer, "positions": positions, "distribution": side,
                    "tokens": 2000, "ridge": 1e-4, "r2": 0.97, "r2_update": 0.9, "accepted": True,
                    "measured_gain": 1.1, "data_gain": 1.1, "sigma_max": 2.0, "frobenius": 1.0,
                    "effective_rank": 30.0, "participation_ratio": 12.0,
                    "data_effective_rank": 11.0, "data_participation_ratio": 4.0,
                }
            )
            for layer in range(self.depth)
            for positions in ("x", "y")
            for side in ("id", "ood")
        )  # fmt: skip

    def signatures(self, mask: Mask) -> tuple[Signature, ...]:
        """Changes around zero, the selected blocks a little towards high gain and low rank."""
        found = []
        for layer in range(self.depth):
            for positions in ("x", "y"):
                selected = layer in mask.blocks
                gain, rank = self.rng.normal(0.0, 0.15, 2) + (0.15, -0.1) * np.array(selected)
                known = bool(self.rng.random() > 0.1)
                found.append(
                    Signature(
                        layer=layer,
                        positions=positions,
                        selected=selected,
                        gain_change=float(gain),
                        rank_change=float(rank),
                        amplifier=bool(gain > 0 and rank < 0) if known else None,
                    )
                )
        return tuple(found)

    def points(self, mask: Mask) -> tuple[Point, ...]:
        """The dense model, removals, alpha curves, and inverses with their controls."""
        others = [i for i in range(self.depth) if i not in mask.blocks][: mask.num_blocks]
        other = Mask.of(self.depth, others)
        found = [
            self.point("dense", Mask.dense(self.depth), "none", 0.0),
            self.point("removed", mask, "selected", self.gain),
            self.point("removed", other, "unselected", -1.5, seed=0),
        ]
        for block in range(self.depth):
            own = float(self.rng.normal(-0.3, 0.4))
            found.append(self.point("removed", Mask.of(self.depth, [block]), str(block), own))
        for alpha in ALPHAS:
            own, theirs = self.gain * (1 - alpha), -1.5 * (1 - alpha) ** 2
            found.append(self.point("scaled", mask, "selected", own, alpha=alpha))
            found.append(self.point("scaled", other, "unselected", theirs, alpha=alpha, seed=0))
        shares: Sequence[tuple[str, Sequence[float], dict[str, Any]]] = (
            ("inverse", (0.9, 0.8, 0.2), {}),
            ("random", (-3.0, -2.0, -5.0), {"ridge": 1e-3}),
            ("rotated", (-0.4, 0.1, -0.2), {"ridge": 1e-3}),
        )
        for kind, own_shares, told in shares:
            for i, share in enumerate(own_shares):
                details = told | ({"seed": i} if told else {"ridge": 10.0 ** (i - 4)})
                found.append(
                    self.point(kind, mask, "selected", share * self.gain, r2=0.96, **details)
                )
        return tuple(found)

    def point(
        self, intervention: str, mask: Mask, group: str, gain: float, **details: Any
    ) -> Point:
        """A point with a share of the dense loss saved."""
        gap = 0.6 * (1 - 0.5 * gain)
        return Point.model_validate(
            {
                "intervention": intervention,
                "sites": str(mask),
                "group": group,
                "loss_id": self.mean(6e-4 * (1 - gain / 4), 1e-5),
                "loss_ood": self.mean(self.base * (1 - gain), 0.1 * self.base),
                "gaps": Gaps(
                    norm=gap, distance=gap, cosine=0.2, last_norm=gap, last_distance=None,
                    last_cosine=None,
                ),
                **details,
            }
        )  # fmt: skip
