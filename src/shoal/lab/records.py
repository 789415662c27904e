"""The typed results of the shift experiments of one lab model.

Losses are mean squared errors over the points of a prompt that count. A gain is the share of the
dense model's loss that is saved, 1 - loss / dense: 0 is none, 1 all of it, below 0 a cost.
"""

from typing import Any, Literal

from pydantic import Field

from shoal.core.plan import MaskField
from shoal.core.records import Curve, Mean, Record


class Compared(Record):
    """A loss beside the dense model's on the same functions; intervals are paired."""

    loss: Mean
    difference: Mean = Field(description="loss - what it is compared with; below 0 is better")
    gain: Mean = Field(description="1 - loss / what it is compared with")


class Step(Record):
    """One mask on TALE's path, on the selection functions."""

    mask: MaskField
    loss: float


class Selection(Record):
    """What was chosen on the selection functions of one task."""

    task: str
    functions: int
    dense: float = Field(description="the dense model's loss on the selection functions")
    epsilon: float = Field(description="loss that may be lost, absolute")
    path: tuple[Step, ...] = Field(description="what TALE accepted, the dense model first")
    stopped_because: str
    evaluations: int = Field(description="masks that TALE asked for besides the dense one")
    best: MaskField = Field(description="TALE's BEST: the least loss on the path; may be dense")
    bsba: MaskField = Field(description="TALE's BSBA: the deepest on it no worse than dense")
    single: MaskField = Field(description="the best removal of one block")
    random: tuple[MaskField, ...] = Field(
        description="random masks as large as BEST, to be judged on the test functions"
    )
    random_best: MaskField | None = Field(
        description="the best of `random_searched` random masks as large as BEST; None where BEST "
        "is dense"
    )
    random_searched: int


class Measured(Record):
    """A mask on the test functions of a task."""

    name: str = Field(description="dense, best, bsba, single, random_best, or random")
    mask: MaskField
    selection: float | None = Field(
        description="its loss on the selection functions; None where it was not judged there"
    )
    test: Compared


class Range(Record):
    """How large a model's predictions get on the test functions."""

    largest: float = Field(description="largest |prediction|")
    near_largest: float = Field(description="share of predictions within 2% of that; a plateau")
    near_bound: float | None = Field(
        description="share within 2% of the largest |y| that training could show"
    )
    beyond_bound: float | None = Field(description="share beyond that by more than 2%")


class Split(Record):
    """The part of the loss that comes from some points; the parts add up to the whole."""

    where: Literal["inside", "outside"] = Field(description="whether |y| could occur in training")
    share: float = Field(description="share of the points")
    dense: Mean
    best: Compared


class Rescaled(Record):
    """Predictions times a factor plus an offset, both fitted on the selection functions."""

    model: Literal["dense", "best"]
    form: Literal["scale", "affine"]
    factor: float
    offset: float
    test: Compared = Field(description="compared with the dense model as it is")


class Saturation(Record):
    """Whether a gain needs more than predictions of another size."""

    bound: float | None = Field(description="largest |y| that training could show; None: no bound")
    largest_y: float = Field(description="largest |y| of the test functions")
    ranges: dict[str, Range] = Field(description="dense, best")
    splits: tuple[Split, ...] = Field(description="empty where training had no bound")
    rescaled: tuple[Rescaled, ...]
    best_beyond_scale: Compared = Field(
        description="BEST compared with the rescaled dense model: no gain here, no evidence of "
        "more than size"
    )
    scaled_beyond_scale: Compared = Field(description="the same, with BEST rescaled as well")


class Shift(Record):
    """One task: what was chosen for it, and how that does on functions that chose nothing."""

    task: str
    family: dict[str, Any] = Field(description="degree, coefficients, inputs")
    in_distribution: bool
    sigma: float
    functions: int
    selection: Selection
    masks: tuple[Measured, ...]
    random: tuple[Measured, ...]
    random_better: float | None = Field(
        description="share of the random masks whose test loss is below BEST's"
    )
    lengths: dict[str, Curve] = Field(
        description="squared error per point: dense, best and the reference learners; step i + 1 "
        "is predicted from i points"
    )
    saturation: Saturation


class Cell(Record):
    """A mask that was chosen for one task, on the test functions of another."""

    chosen_on: str
    which: Literal["best", "bsba"]
    task: str
    mask: MaskField
    test: Compared


class Shifts(Record):
    """All tasks of one lab model."""

    model: str
    fingerprint: str
    seed: int
    trained: dict[str, Any] = Field(description="degree, coefficients, inputs of training")
    settings: dict[str, Any]
    shifts: tuple[Shift, ...] = Field(description="the task of training first")
    transfer: tuple[Cell, ...] = Field(description="every chosen mask on every task")
