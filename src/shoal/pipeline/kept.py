"""Finished parts of long work, kept so that a killed run goes on and others can share them."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import TypeAdapter

from shoal.core import fingerprint
from shoal.engine.artifacts import Artifacts

Part = TypeVar("Part")


class Kept:
    """Answers what is known and notes what is not.

    Args:
        artifacts: Where parts are kept.

    Attributes:
        seconds: Part -> time that it took; 0 where it was known.
    """

    def __init__(self, artifacts: Artifacts) -> None:
        self.artifacts = artifacts
        self.seconds: dict[str, float] = {}

    def part(self, name: str, kind: Any, key: Any, compute: Callable[[], Part]) -> Part:
        """A part of the results.

        Args:
            name: What it is called.
            kind: Its type, as pydantic reads it back.
            key: Everything that it depends on; a JSON value.
            compute: Makes it.
        """
        adapter: TypeAdapter[Part] = TypeAdapter(kind)
        # Another form of the results is another part.
        place = fingerprint.of_json(["part", name, key, adapter.json_schema()])
        if place in self.artifacts:
            self.seconds[name] = 0.0
            return adapter.validate_json(self.artifacts[place])
        start = time.monotonic()
        found = compute()
        self.artifacts[place] = adapter.dump_json(found)
        self.seconds[name] = time.monotonic() - start
        return found
