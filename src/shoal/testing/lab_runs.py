"""Made-up lab runs with plausible numbers, for tests and examples of reports."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.core.mask import Mask
from shoal.core.records import Curve, Mean
from shoal.lab.claims import all_claims
from shoal.lab.records import (
    Cell,
    Compared,
    Measured,
    Range,
    Rescaled,
    Saturation,
    Selection,
    Shift,
    Shifts,
    Split,
    Step,
)
from shoal.lab.study import LabRun
from shoal.testing.lab_geometries import made_up_placed

MODELS = (
    ("linear-narrow-0", 1.0),
    ("linear-narrow-1", 1.0),
    ("linear-narrow-2", 1.0),
    ("linear-wide-0", 5.0),
)
"""Names, and half widths of the coefficients of training."""

SIGMAS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 8.0, 10.0)


def made_up_lab_run(
    seed: int = 0,
    *,
    models: Sequence[tuple[str, float]] = MODELS,
    sigmas: Sequence[float] = SIGMAS,
    geometry_sigmas: Sequence[float] = (1.0, 2.0, 5.0, 10.0),
    depth: int = 12,
    points: int = 21,
    functions: int = 512,
    dense: bool = False,
    claims: bool = True,
) -> LabRun:
    """A lab run of models that were never trained.

    Args:
        seed: Seed of the numbers.
        models: Name and half width of training of each.
        sigmas: Half widths that were tested besides.
        geometry_sigmas: Those whose geometry was taken; empty for none.
        depth: Blocks of the models, at least 4.
        points: Points of a prompt.
        functions: Functions behind each mean; with one there are no intervals.
        dense: Whether TALE found nothing to remove, on any task.
        claims: Whether the claims are answered.
    """
    made = _Maker(seed, depth, points, functions, dense)
    shifts = tuple(made.shifts(i, *model, sigmas) for i, model in enumerate(models))
    placed = tuple(
        made_up_placed(model, shift, depth, functions, seed=seed + i)
        for i, model in enumerate(shifts)
        for shift in model.shifts
        if shift.sigma in geometry_sigmas and not shift.in_distribution
    )
    return LabRun(
        settings={
            "models": [name for name, _ in models],
            "shifts": list(sigmas),
            "geometry_shifts": list(geometry_sigmas),
            "selection": 256,
            "test": functions,
        },
        models=shifts,
        learning=tuple(made.mean(800.0, 60.0) for _ in models),
        geometries=placed,
        claims=all_claims(shifts, placed) if claims else (),
        notes=("linear-narrow-1 was stopped early.",),
        environment={"torch": "2.13.0", "device": "cpu"},
        seconds={"linear-narrow-0/select U(-2,2)": 71.2},
        shoal_version="0",
    )


class _Maker:
    """Numbers from one generator; the same calls in the same order give the same numbers."""

    def __init__(self, seed: int, depth: int, points: int, functions: int, dense: bool) -> None:
        self.rng = np.random.default_rng(seed)
        self.depth, self.points, self.functions, self.dense = depth, points, functions, dense

    def mean(self, value: float, half: float) -> Mean:
        """A mean with an interval, which a single function has not."""
        ends = (None, None) if self.functions < 2 else (value - half, value + half)
        return Mean(value=value, low=ends[0], high=ends[1], count=self.functions)

    def compared(self, base: float, gain: float) -> Compared:
        """A loss that saves a share of another."""
        half = 0.0 if gain == 0 else 0.05
        return Compared(
            loss=self.mean(base * (1 - gain), 0.1 * base),
            difference=self.mean(-base * gain, half * base),
            gain=self.mean(gain, half),
        )

    def blocks(self, count: int) -> list[int]:
        """Distinct blocks in no order."""
        return [int(i) for i in self.rng.permutation(self.depth)[:count]]

    def shifts(self, seed: int, name: str, trained: float, sigmas: Sequence[float]) -> Shifts:
        """All tasks of a model, that of training first."""
        tasks = list(dict.fromkeys([trained, *sigmas]))
        found = tuple(self.shift(sigma, trained) for sigma in tasks)
        return Shifts(
            model=name,
            fingerprint=f"{seed:016x}",
            seed=seed,
            trained=family(trained),
            settings={"selection": 256, "test": self.functions, "skip": 2},
            shifts=found,
            transfer=tuple(
                Cell(
                    chosen_on=chosen.task,
                    which="best",
                    task=task.task,
                    mask=chosen.selection.best,
                    test=self.compared(
                        base_loss(task.sigma, trained), self.elsewhere(chosen, task)
                    ),
                )
                for task in found
                for chosen in found
            ),
        )

    def elsewhere(self, chosen: Shift, task: Shift) -> float:
        """Gain of a mask on another task: less, and a cost for tasks closer to training."""
        gain = next(m for m in chosen.masks if m.name == "best").test.gain.value
        return gain if chosen is task else gain - 4 * gain * max(chosen.sigma / task.sigma - 1, 0)

    def shift(self, sigma: float, trained: float) -> Shift:
        """A task: the further from training, the more is gained."""
        base, ratio = base_loss(sigma, trained), sigma / trained
        gain = max(0.0, 0.5 * (1 - 1 / ratio) + float(self.rng.normal(0, 0.03)))
        count = 0 if self.dense or ratio == 1 else 1 + int(self.rng.integers(0, self.depth // 2))
        order = self.blocks(min(count + 1, self.depth - 1)) if count else []
        gain = gain if count else 0.0
        best, bsba = Mask.of(self.depth, order[:count]), Mask.of(self.depth, order)
        single = Mask.of(self.depth, order[:1] or [0])
        random = tuple(Mask.of(self.depth, self.blocks(count)) for _ in range(20 if count else 0))
        tried = [("dense", Mask.dense(self.depth), 0.0), ("best", best, gain)]
        tried += [("bsba", bsba, gain / 3), ("single", single, 0.6 * gain - 0.01)]
        if count:
            tried.append(("random_best", Mask.of(self.depth, self.blocks(count)), 0.4 * gain - 0.1))
        masks = [self.measured(n, m, base, g) for n, m, g in tried]
        spread = [0.3 * gain - float(self.rng.exponential(1.5)) for _ in random]
        drawn = zip(random, spread, strict=True)
        return Shift(
            task=f"U({-sigma:g},{sigma:g})",
            family=family(sigma),
            in_distribution=ratio == 1,
            sigma=sigma,
            functions=self.functions,
            selection=Selection(
                task=f"U({-sigma:g},{sigma:g})",
                functions=256,
                dense=base,
                epsilon=0.08 * base,
                path=tuple(
                    Step(mask=Mask.of(self.depth, order[:i]), loss=base * (1 - gain * i / 8))
                    for i in range(len(order) + 1)
                ),
                stopped_because="floor",
                evaluations=12 * (len(order) + 1),
                best=best,
                bsba=bsba,
                single=single,
                random=random,
                random_best=masks[4].mask if count else None,
                random_searched=60 if count else 0,
            ),
            masks=tuple(masks),
            random=tuple(self.measured("random", m, base, g) for m, g in drawn),
            random_better=float(np.mean([g > gain for g in spread])) if spread else None,
            lengths=self.lengths(base, gain, sigma),
            saturation=self.saturation(base, gain, sigma, trained),
        )

    def measured(self, name: str, mask: Mask, base: float, gain: float) -> Measured:
        """A mask on the test functions."""
        return Measured(
            name=name, mask=mask, selection=base * (1 - gain), test=self.compared(base, gain)
        )

    def lengths(self, base: float, gain: float, sigma: float) -> dict[str, Curve]:
        """Errors that fall with what is seen, down to the model's own level."""
        zero = 4 / 9 * sigma**2
        seen = np.arange(self.points)
        dense = zero * 0.4**seen + base
        values = {
            "dense": dense,
            "best": dense * (1 - gain),
            "least_squares": np.where(seen < 2, zero / (1.0 + seen), 1e-13),
            "ridge": np.where(seen < 2, zero / (1.0 + seen), 1e-6 / (1.0 + seen)),
            "clipped": np.where(seen < 2, zero / (1.0 + seen), 1e-13 + 0.3 * base),
            "zero": np.full(self.points, zero),
        }
        return {name: self.curve(own) for name, own in values.items()}

    def curve(self, values: "np.ndarray[Any, np.dtype[np.float64]]") -> Curve:
        """A curve whose intervals are a tenth of its values."""
        found = [self.mean(float(v), 0.1 * float(v)) for v in values]
        return Curve(
            steps=tuple(range(1, len(found) + 1)),
            value=tuple(m.value for m in found),
            low=tuple(m.low for m in found),
            high=tuple(m.high for m in found),
            count=tuple(m.count for m in found),
        )

    def saturation(self, base: float, gain: float, sigma: float, trained: float) -> Saturation:
        """Predictions that go little beyond the bound of training."""
        largest = 1.9 * sigma
        sizes = {"dense": min(largest, 2.2 * trained), "best": min(largest, 2.0 * trained)}
        outside = min(0.9, max(0.0, 1 - trained / sigma))
        parts = (("inside", 1 - outside), ("outside", outside))
        forms = (("dense", "scale"), ("dense", "affine"), ("best", "scale"), ("best", "affine"))
        return Saturation(
            bound=2 * trained,
            largest_y=largest,
            ranges={
                name: Range(largest=size, near_largest=0.01, near_bound=0.02, beyond_bound=0.003)
                for name, size in sizes.items()
            },
            splits=tuple(
                Split.model_validate(
                    {
                        "where": where,
                        "share": share,
                        "dense": self.mean(base * share, 0.05 * base),
                        "best": self.compared(base * share, gain),
                    }
                )
                for where, share in parts
            ),
            rescaled=tuple(
                Rescaled.model_validate(
                    {
                        "model": model,
                        "form": form,
                        "factor": 1.02,
                        "offset": 0.0 if form == "scale" else 0.01,
                        "test": self.compared(base, 0.2 * gain + gain * (model == "best") / 2),
                    }
                )
                for model, form in forms
            ),
            best_beyond_scale=self.compared(0.8 * base, 0.8 * gain),
            scaled_beyond_scale=self.compared(0.8 * base, 0.7 * gain),
        )


def family(sigma: float) -> dict[str, Any]:
    """A family of linear functions."""
    return {"degree": 1, "coefficients": f"U({-sigma:g},{sigma:g})", "inputs": "U(-1,1)"}


def base_loss(sigma: float, trained: float) -> float:
    """Loss of the dense model: small in training's range, and growing fast outside of it."""
    return 6e-4 * trained**2 * (1 + (max(sigma / trained, 1.0) ** 4 - 1))
