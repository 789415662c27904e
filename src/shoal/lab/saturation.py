"""Whether a gain needs more than predictions of another size.

A model that never saw values above some bound may predict none above it, and one whose predictions
are all too large, or too small, gains from any change that shrinks, or stretches, them. So the gain
is split at the bound, and held against the dense model's own predictions times one factor (and plus
an offset), fitted where the masks are chosen and judged where they are judged.
"""

from math import isfinite

import numpy as np
from numpy.typing import NDArray

from shoal.core.mask import Mask
from shoal.lab.paired import compared, mean_loss
from shoal.lab.records import Range, Rescaled, Saturation, Split
from shoal.lab.references import largest_value
from shoal.lab.tasks import Task

NEAR = 0.02
"""What counts as near, relative."""

Values = NDArray[np.float64]


def saturation(task: Task, best: Mask, seed: int = 0) -> Saturation:
    """Check the gain of a mask on the test functions of a task.

    Args:
        task: The task.
        best: The mask; where it is dense there is nothing to explain, and nothing is gained.
        seed: Of the bootstrap.
    """
    masks = {"dense": Mask.dense(best.depth), "best": best}
    skip = task.test.skip
    predicted = {name: task.test.predictions(mask)[:, skip:] for name, mask in masks.items()}
    y = task.test.values[:, skip:]
    bound = largest_value(task.trained)
    base = ((predicted["dense"] - y) ** 2).mean(1)
    rescaled, losses = [], {}
    for name, mask in masks.items():
        for form in ("scale", "affine"):
            factor, offset = fitted(task, mask, offset=form == "affine")
            loss = ((factor * predicted[name] + offset - y) ** 2).mean(1)
            losses[name, form] = loss
            rescaled.append(
                Rescaled.model_validate(
                    {
                        "model": name,
                        "form": form,
                        "factor": factor,
                        "offset": offset,
                        "test": compared(loss, base, seed),
                    }
                )
            )
    own = ((predicted["best"] - y) ** 2).mean(1)
    return Saturation(
        bound=bound if isfinite(bound) else None,
        largest_y=float(np.abs(y).max()),
        ranges={name: _range(values, bound) for name, values in predicted.items()},
        splits=_splits(predicted["dense"], predicted["best"], y, bound, seed),
        rescaled=tuple(rescaled),
        best_beyond_scale=compared(own, losses["dense", "scale"], seed),
        scaled_beyond_scale=compared(losses["best", "scale"], losses["dense", "scale"], seed),
    )


def fitted(task: Task, mask: Mask, *, offset: bool) -> tuple[float, float]:
    """Factor and offset that bring a masked model's predictions closest to the values.

    Least squares over the points of the selection functions that count.

    Args:
        task: The task.
        mask: The mask.
        offset: Whether there is one, else it is 0.
    """
    counted = task.selection.predictions(mask)[:, task.selection.skip :].ravel()
    y = task.selection.values[:, task.selection.skip :].ravel()
    columns = [counted, np.ones_like(counted)] if offset else [counted]
    found = np.linalg.lstsq(np.stack(columns, axis=1), y, rcond=None)[0]
    return float(found[0]), float(found[1]) if offset else 0.0


def _range(predicted: Values, bound: float) -> Range:
    sizes = np.abs(predicted)
    largest = float(sizes.max())
    known = isfinite(bound)
    return Range(
        largest=largest,
        near_largest=float((sizes >= (1 - NEAR) * largest).mean()),
        near_bound=float((np.abs(sizes - bound) <= NEAR * bound).mean()) if known else None,
        beyond_bound=float((sizes > (1 + NEAR) * bound).mean()) if known else None,
    )


def _splits(dense: Values, best: Values, y: Values, bound: float, seed: int) -> tuple[Split, ...]:
    """The loss of the points inside the trained range, and of those outside."""
    if not isfinite(bound):
        return ()
    inside = np.abs(y) <= bound
    found = []
    for where, chosen in (("inside", inside), ("outside", ~inside)):
        parts = [np.where(chosen, (p - y) ** 2, 0.0).mean(1) for p in (dense, best)]
        values = {
            "where": where,
            "share": float(chosen.mean()),
            "dense": mean_loss(parts[0], seed),
            "best": compared(parts[1], parts[0], seed),
        }
        found.append(Split.model_validate(values))
    return tuple(found)
