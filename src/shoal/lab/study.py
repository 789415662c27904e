"""The typed results of a lab run: what lab_run.json holds."""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from shoal.core.records import Mean, Record
from shoal.core.version import __version__
from shoal.geometry.records import Geometry
from shoal.lab.records import Shifts

Answer = Literal["holds", "holds in part", "does not hold here", "not tested"]


class Evidence(Record):
    """What one model says of a claim on one task."""

    model: str
    task: str
    value: float = Field(description="the number that decides")
    low: float | None = None
    high: float | None = None
    supports: bool
    remark: str = ""


class Claim(Record):
    """A claim of the paper, and what was found."""

    name: str
    statement: str
    decides: str = Field(description="what the evidence's number is, and when it supports")
    answer: Answer
    summary: str = Field(description="the counts behind the answer")
    models: int = Field(description="models that had something to say")
    evidence: tuple[Evidence, ...]
    facts: dict[str, float] = Field({}, description="further numbers over all the evidence")


class Placed(Record):
    """The geometry of one model on one task, with the mask that was chosen for that task."""

    model: str
    task: str
    sigma: float
    trained: float = Field(description="sigma of training")
    geometry: Geometry

    @property
    def saved(self) -> float | None:
        """Share of the shifted loss that removing the mask saves; None if not measured."""
        points = self.geometry.points
        dense = next((p for p in points if p.intervention == "dense"), None)
        removed = next(
            (p for p in points if p.intervention == "removed" and p.group == "selected"), None
        )
        if dense is None or removed is None:
            return None
        return 1 - removed.loss_ood.value / dense.loss_ood.value


class LabRun(Record):
    """Everything that was found."""

    settings: dict[str, Any]
    models: tuple[Shifts, ...]
    learning: tuple[Mean, ...] = Field(
        (), description="per model: zero predictor's error over its own at the last point"
    )
    geometries: tuple[Placed, ...] = ()
    claims: tuple[Claim, ...] = ()
    notes: tuple[str, ...] = ()
    environment: dict[str, str] = Field({})
    seconds: dict[str, float] = Field({})
    shoal_version: str = __version__

    @property
    def of_best(self) -> tuple[Placed, ...]:
        """The geometries of what TALE removes; the others are of the best single removal."""
        return of_best(self.models, self.geometries)


def of_best(models: Sequence[Shifts], geometries: Sequence[Placed]) -> tuple[Placed, ...]:
    """Those geometries whose mask is TALE's BEST for their task."""
    best = {(m.model, s.task): s.selection.best for m in models for s in m.shifts}
    return tuple(p for p in geometries if p.geometry.mask == best.get((p.model, p.task)))
