"""One tiny model on disk, as shoal sees it and as the oracle sees it."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig

from shoal.core.errors import UnsupportedModelError, UsageError
from shoal.core.mask import Mask
from shoal.models.dense import DenseModel
from shoal.models.load import load_dense
from shoal.surgery.export import export
from shoal.surgery.fusing import Format
from shoal.testing.conformance_oracle import DEPTH, Drop, Oracle, complaints, load
from shoal.testing.conformance_row import OK, Cases, Outcome, refused, wrong
from shoal.testing.tiny import save_tiny
from shoal.testing.zoo import ZOO

REFUSALS = (UnsupportedModelError, UsageError)
"""What shoal raises where it declines on purpose."""

Case = Callable[[], Outcome]


def settle(case: Case) -> Outcome:
    """Run one case; whatever it raises is an outcome."""
    try:
        return case()
    except REFUSALS as error:
        return refused(error)
    except Exception as error:
        return wrong(f"{type(error).__name__}: {error}")


def settle_all(cases: Callable[[], Cases]) -> Cases:
    """Run a check; where it raises before its cases, that is its only outcome."""
    found: Cases = {}

    def run() -> Outcome:
        found.update(cases())
        return OK

    outcome = settle(run)
    return found if outcome == OK else {"all": outcome}


def mask_of(drop: Drop) -> Mask:
    """The mask that leaves something out."""
    return Mask.parse(f"-[{','.join(map(str, drop))}]", DEPTH)


@dataclass
class Subject:
    """A tiny model, saved, and loaded twice: by shoal, and by the oracle for itself.

    Attributes:
        name: Name in the zoo.
        folder: A folder for this subject alone.
    """

    name: str
    folder: Path
    _exports: int = field(init=False, default=0)

    @cached_property
    def checkpoint(self) -> Path:
        """The dense checkpoint."""
        return save_tiny(self.name, self.folder / "dense", tokenizer=False)

    @cached_property
    def oracle(self) -> Oracle:
        """What the model must say with blocks left out."""
        return Oracle.load(self.checkpoint)

    @property
    def dense(self) -> DenseModel:
        """The model as shoal loads it; loaded once.

        Raises:
            UsageError: If shoal declines the model.
            UnsupportedModelError: If it declines the model.
        """
        return self._dense

    @cached_property
    def _dense(self) -> DenseModel:
        return load_dense(str(self.checkpoint), device="cpu")

    def export_and_judge(
        self,
        drop: Drop,
        dense: DenseModel | None = None,
        *,
        check: bool = True,
        tokens: bool = True,
        format: Format = "auto",
    ) -> Outcome:
        """Export without some blocks, load the result as any user does, and judge it.

        Args:
            drop: The blocks.
            dense: The model; None for that of the subject.
            check: Whether shoal checks the result as well.
            tokens: Whether to judge what is written, not the logits alone.
            format: How sub-layers are written.
        """
        self._exports += 1
        out = self.folder / f"pruned-{self._exports}"
        try:
            export(dense or self.dense, mask_of(drop), out, check=check, format=format)
        except REFUSALS as error:
            left = "; something was written all the same" if out.exists() else ""
            return wrong(f"{error}{left}") if left else refused(error)
        model, report = load(out)
        if found := complaints(report):
            return wrong(found)
        judge = self.oracle.judge if tokens else self.oracle.judge_logits
        return judge(model, drop)

    def old_checkpoint(self) -> Path | None:
        """The checkpoint with a config.json as older releases wrote it.

        Every list that transformers derives from the other fields is left out of it.

        Returns:
            The folder, or None where no list can be left out.
        """
        source = self.checkpoint
        full = json.loads((source / "config.json").read_text(encoding="utf-8"))
        wanted = _read(source)
        folder = self.folder / "old"
        folder.mkdir(exist_ok=True)
        for file in source.iterdir():
            if file.name != "config.json":
                (folder / file.name).write_bytes(file.read_bytes())
        # Shorthands such as sliding_window_pattern stood in old files and are not written any more.
        for key, value in ZOO[self.name].own(DEPTH).items():
            if isinstance(value, int | float | str):
                full.setdefault(key, value)
        left_out = 0
        for part, key in _lists(full):
            value = part.pop(key)
            _write(folder, full)
            if _reads_as(folder, wanted):
                left_out += 1
            else:
                part[key] = value
        _write(folder, full)
        return folder if left_out else None


def _lists(config: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """The lists of a config that may have one entry per block, with the part they are in."""
    found = []
    for part in (config, *(v for v in config.values() if isinstance(v, dict))):
        for key, value in part.items():
            if isinstance(value, list) and (len(value) == DEPTH or key.endswith("_layers")):
                found.append((part, key))
    return found


def _write(folder: Path, config: dict[str, Any]) -> None:
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")


def _read(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = AutoConfig.from_pretrained(folder).to_dict()
    return config | {"_name_or_path": ""}


def _reads_as(folder: Path, wanted: dict[str, Any]) -> bool:
    try:
        return _read(folder) == wanted
    except (StrictDataclassError, ValueError, TypeError, KeyError):
        return False
