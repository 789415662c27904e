"""The typed results of a geometry: what geometry.json holds.

Depths count from 0, what enters block 0, to N, what leaves the last block. `id` is the task that
the model is adapted to, `ood` the shifted one.
"""

from typing import Any, Literal

from pydantic import Field

from shoal.core.plan import MaskField, ModelRef
from shoal.core.records import Mean, Record
from shoal.core.version import __version__

Distribution = Literal["id", "ood"]

Intervention = Literal["dense", "removed", "scaled", "inverse", "random", "rotated"]


class Profile(Record):
    """A number per depth, 0 to N; means over sequences."""

    norm: tuple[Mean, ...] = Field(description="length of the hidden state, over positions")
    distance: tuple[Mean, ...] = Field(
        description="distance between the states of two positions of one sequence"
    )
    cosine: tuple[Mean, ...] = Field(description="1 - cosine of the two")
    last_norm: tuple[Mean, ...] = Field(description="length of the last position's state")
    last_distance: tuple[float, ...] = Field(
        description="distance between the last states of two sequences; empty for a single one"
    )
    last_cosine: tuple[float, ...] = Field(description="1 - cosine of those two")


class Gaps(Record):
    """Mean over depths 1 to N of |log of one profile - log of the ID profile|."""

    norm: float
    distance: float
    cosine: float
    last_norm: float
    last_distance: float | None
    last_cosine: float | None


class Change(Record):
    """How a gap changes by pruning, with a bootstrap interval over sequences; below 0 is closer."""

    before: float
    after: float
    change: Mean


class Linear(Record):
    """The linear surrogate of one block on one distribution: h' ~ A (h - mean) + mean'."""

    layer: int
    positions: str = Field(description="class of positions: all; in the lab x or y")
    distribution: Distribution
    tokens: int = Field(description="tokens that A was fitted on")
    ridge: float
    r2: float = Field(description="held-out R^2 of the state that leaves the block")
    r2_update: float = Field(description="held-out R^2 of what the block adds")
    accepted: bool = Field(description="whether R^2 reaches the threshold")
    measured_gain: float = Field(
        description="E |h'_i - h'_j| / E |h_i - h_j| of the block itself, without a surrogate"
    )
    data_gain: float = Field(description="the same of A")
    sigma_max: float = Field(description="largest singular value of A")
    frobenius: float = Field(description="Frobenius norm of A over the root of the width")
    effective_rank: float = Field(description="of A - I")
    participation_ratio: float = Field(description="of A - I")
    data_effective_rank: float = Field(description="of (A - I) h over the data")
    data_participation_ratio: float


class Signature(Record):
    """Whether a block is a high-gain, low-rank amplifier of shifted inputs."""

    layer: int
    positions: str
    selected: bool = Field(description="whether the plan removes it")
    gain_change: float = Field(description="log of the measured gain, ood over id")
    rank_change: float = Field(description="log of the update's rank on the data, ood over id")
    amplifier: bool | None = Field(
        description="gain up and rank down; None where a surrogate was rejected"
    )


class Point(Record):
    """The model under one intervention."""

    intervention: Intervention
    sites: str = Field(description="where, as a mask")
    group: str = Field(description="selected, unselected, a block's index, or none")
    alpha: float | None = Field(None, description="scale of what the sites add")
    ridge: float | None = Field(None, description="of the pseudo-inverse")
    seed: int | None = Field(None, description="of a random control")
    r2: float | None = Field(None, description="least held-out R^2 of the surrogates inverted")
    loss_id: Mean
    loss_ood: Mean
    gaps: Gaps = Field(description="the ood profile under the intervention against the dense id's")


class Geometry(Record):
    """Everything that was found."""

    model: ModelRef
    depth: int
    width: int
    id: str
    ood: str
    metric: dict[str, str] = Field(description="id, ood -> what the loss of that task is")
    mask: MaskField | None
    settings: dict[str, Any]
    profiles: dict[str, Profile] = Field(
        description="id, ood, and with a plan id_pruned, ood_pruned"
    )
    changes: dict[str, Change] = Field({}, description="norm, distance ... -> the gap of ood to id")
    linear: tuple[Linear, ...] = ()
    signatures: tuple[Signature, ...] = ()
    points: tuple[Point, ...] = ()
    notes: tuple[str, ...] = ()
    environment: dict[str, str] = Field({})
    seconds: dict[str, float] = Field({}, description="time that each part took; 0 if kept")
    shoal_version: str = __version__
