"""What the conformance run notes about one tiny model."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """How a case ended."""

    OK = "ok"
    REFUSED = "refused"
    WRONG = "wrong"
    NONE = "none"


@dataclass(frozen=True)
class Outcome:
    """How one case of a check ended. As text: `ok`, `refused: why`, `wrong: what`, `none: why`.

    Attributes:
        status: `ok`; `refused` by an error that shoal raises on purpose before it writes; `wrong`,
            which is everything else; or `none`, where there is nothing to check.
        why: The reason, in one line; empty where all is well.
    """

    status: Status
    why: str = ""

    def __str__(self) -> str:
        return f"{self.status}: {self.why}" if self.why else str(self.status)

    @classmethod
    def parse(cls, text: str) -> "Outcome":
        """Read the text form."""
        status, _, why = text.partition(": ")
        return cls(Status(status), why)


OK = Outcome(Status.OK)


def refused(why: object) -> Outcome:
    """The outcome of something that shoal declined."""
    return Outcome(Status.REFUSED, _line(why))


def wrong(what: object) -> Outcome:
    """The outcome of something that must not happen."""
    return Outcome(Status.WRONG, _line(what))


def none(why: object = "") -> Outcome:
    """The outcome of a case that does not apply."""
    return Outcome(Status.NONE, _line(why))


def _line(text: object) -> str:
    return " ".join(str(text).split())[:400]


Cases = dict[str, Outcome]
"""Case of a check -> how it ended."""


@dataclass
class Row:
    """One tiny model and what came of every check.

    Attributes:
        name: Name in the zoo.
        model_type: Its model type.
        kind: D, E, X, M or A, as in the zoo.
        blocks: Where its blocks are.
        cache_disagrees: Whether the unpruned model's greedy tokens with a cache are others than
            without one.
        checks: Check -> its cases.
        seconds: Check -> wall time.
    """

    name: str
    model_type: str
    kind: str
    blocks: list[str] = field(default_factory=list)
    cache_disagrees: bool = False
    checks: dict[str, Cases] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def outcomes(self, check: str) -> list[Outcome]:
        """What came of the cases of a check; empty where it was not run."""
        return list(self.checks.get(check, {}).values())

    def passes(self, check: str) -> bool:
        """Whether a check was run and every case of it is `ok`."""
        return bool(self.outcomes(check)) and all(o == OK for o in self.outcomes(check))

    def having(self, status: Status) -> Iterator[tuple[str, str, Outcome]]:
        """Check, case and outcome of all that ended in one way."""
        for check, cases in self.checks.items():
            for case, outcome in cases.items():
                if outcome.status == status:
                    yield check, case, outcome

    def to_json(self) -> dict[str, Any]:
        """The JSON form."""
        form = asdict(self)
        form["checks"] = {
            check: {case: str(outcome) for case, outcome in cases.items()}
            for check, cases in self.checks.items()
        }
        return form

    @classmethod
    def from_json(cls, form: dict[str, Any]) -> "Row":
        """Read the JSON form."""
        checks = {
            check: {case: Outcome.parse(text) for case, text in cases.items()}
            for check, cases in form["checks"].items()
        }
        return cls(**(form | {"checks": checks}))
