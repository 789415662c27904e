"""A plan: which blocks to remove from which model, how that was found and what it scored.

A plan is a small JSON file. Applying it never needs the search.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PlainSerializer, ValidationError

from shoal.core.errors import UsageError
from shoal.core.mask import Mask
from shoal.core.records import Record
from shoal.core.version import __version__

SCHEMA_VERSION = 1

MaskField = Annotated[
    Mask,
    BeforeValidator(lambda v: v if isinstance(v, Mask) else Mask.from_json(v)),
    PlainSerializer(lambda m: m.to_json(), return_type=dict[str, Any]),
]
"""A `Mask` inside a pydantic model, written in its JSON form."""


class ModelRef(Record):
    """Which model a plan is for."""

    id: str = Field(description="hub id, folder, GGUF file, or the name of an embedded model")
    revision: str | None = Field(None, description="resolved commit of a hub model")
    fingerprint: str = Field(description="fingerprint of the checkpoint's content")


class Score(Record):
    """What a mask scored under the objective that chose it."""

    mean: float
    stderr: float | None = None
    dense: float | None = Field(None, description="the dense model's mean under the same objective")
    examples: int


class Plan(Record):
    """A mask with everything needed to apply and to judge it."""

    schema_version: Literal[1] = 1
    model: ModelRef
    mask: MaskField
    objective: str | None = Field(None, description="objective expression, e.g. margin:arc_easy")
    search: dict[str, Any] | None = Field(None, description="search and its options")
    granularity: str | None = Field(None, description="what one step of the search removed")
    budget: str | None = Field(None, description="how much was to be removed")
    score: Score | None = None
    evaluations: int | None = Field(None, description="masks evaluated to find this one")
    stopped: str | None = Field(None, description="budget that ended the search early")
    details: dict[str, Any] | None = Field(None, description="what the search says of its result")
    data: dict[str, Any] | None = Field(None, description="calibration data and tokenisation")
    dtype: str | None = None
    seed: int | None = None
    created: str = Field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    shoal_version: str = __version__

    def save(self, path: Path) -> None:
        """Write the plan as JSON, replacing the file in one step."""
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")
        temporary.replace(path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a plan, or the plan inside a run folder or an exported checkpoint.

        Raises:
            UsageError: If the file is missing, is not JSON, or is not a plan of a known version.
        """
        path = Path(path)
        if path.is_dir():
            for name in ("plan.json", "shoal_plan.json"):
                if (path / name).is_file():
                    path = path / name
                    break
        if not path.is_file():
            raise UsageError(
                f"no plan at {path}. Give a plan.json, or a folder written by `shoal search` "
                "or `shoal export`."
            )
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
            version = value.get("schema_version")
            if version != SCHEMA_VERSION:
                raise UsageError(
                    f"{path} has plan schema version {version!r}; this shoal reads "
                    f"version {SCHEMA_VERSION}."
                )
            return cls.model_validate(value)
        except (json.JSONDecodeError, UnicodeDecodeError, AttributeError) as error:
            raise UsageError(f"{path} is not a plan: it holds no JSON object.") from error
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            message = first["msg"].removeprefix("Value error, ").removesuffix(".")
            raise UsageError(f"{path} is not a plan: {where}: {message}.") from error
