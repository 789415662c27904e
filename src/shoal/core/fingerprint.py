"""Short, stable names for content: files, JSON values."""

import hashlib
import json
from pathlib import Path
from typing import Any

LENGTH = 16
"""Hexadecimal digits kept of a SHA-256: 64 bits, ample for the runs of one project."""


def of_json(value: Any) -> str:
    """Fingerprint of a JSON value; key order does not matter."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def of_files(paths: list[Path]) -> str:
    """Fingerprint of the names and full contents of some files."""
    total = hashlib.sha256()
    for path in sorted(paths, key=lambda p: p.name):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        total.update(f"{path.name}:{digest}\n".encode())
    return total.hexdigest()[:LENGTH]
