"""Carrying the settings of a quantisation over: what names a block gets its new index.

Settings name modules in lists of what is left alone, in tables of exceptions, and in patterns. A
name is renumbered like a tensor. Whether that is right is not guessed from its form: for every
module that stays, the new entry must match its new name exactly where the old entry matched its old
name. An entry for which nothing does is refused.
"""

import copy
import fnmatch
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from transformers import PreTrainedConfig

from shoal.core.errors import UnsupportedModelError
from shoal.models.load import QUANTISED_BY

FILES = ("quantize_config.json", "quant_config.json", "hf_quant_config.json")
"""Copies of the settings that some libraries leave beside the weights."""

NAMING = frozenset(
    {
        "modules_to_not_convert",
        "llm_int8_skip_modules",
        "ignore",
        "ignored_layers",
        "exclude",
        "exclude_modules",
        "skip_modules",
        "targets",
        "dynamic",
        "dynamic_config",
        "extra_config",
        "layer_quant_config",
        "module_fqn_to_config",
    }
)
"""Settings whose strings are names or patterns of modules."""

Matches: TypeAlias = Callable[[str], bool]


@dataclass(frozen=True)
class Renumbering:
    """Renumbers the blocks that the settings of a quantisation name.

    Attributes:
        rename: Old name of a module -> its new name, or None for one that goes.
        modules: Names of all modules of the dense model.
        lists: Paths of the list of blocks in names, e.g. `model.layers`.
    """

    rename: Callable[[str], str | None]
    modules: frozenset[str]
    lists: tuple[str, ...]
    _kept: list[tuple[str, str]] = field(init=False, repr=False, default_factory=list)

    def __post_init__(self) -> None:
        pairs = ((name, self.rename(name)) for name in sorted(self.modules))
        self._kept.extend((old, new) for old, new in pairs if new is not None)

    def config(self, config: PreTrainedConfig) -> PreTrainedConfig:
        """A copy of a config with its settings renumbered.

        Raises:
            UnsupportedModelError: If an entry cannot be renumbered.
        """
        edited = copy.deepcopy(config)
        for name in QUANTISED_BY:
            found = getattr(edited, name, None)
            if found is not None:
                plain = found if isinstance(found, dict) else found.to_dict()
                setattr(edited, name, self.settings(plain))
        return edited

    def settings(self, settings: dict[str, Any]) -> dict[str, Any]:
        """The settings with every entry renumbered.

        Raises:
            UnsupportedModelError: If an entry cannot be renumbered.
        """
        exact = "compressed" in str(settings.get("quant_method") or settings.get("format") or "")
        edited: dict[str, Any] = self._walk(settings, "", False, exact)
        return edited

    def _walk(self, value: Any, where: str, naming: bool, exact: bool) -> Any:
        if isinstance(value, dict):
            edited = {}
            for key, inner in value.items():
                new = self._entry(key, where, naming, exact)
                if new is not None:
                    # The keys of a table of exceptions are names; what is below them is not.
                    below = key in NAMING if not naming else False
                    edited[new] = self._walk(inner, f"{where}.{key}".strip("."), below, exact)
            return edited
        if isinstance(value, list | tuple):
            walked = [self._walk(inner, where, naming, exact) for inner in value]
            return [new for new, old in zip(walked, value, strict=True) if _stays(new, old)]
        return self._entry(value, where, naming, exact)

    def _entry(self, text: Any, where: str, naming: bool, exact: bool) -> Any:
        if not isinstance(text, str) or not (naming or self._in_list(text)):
            return text
        if exact and text in self.modules:
            return self.rename(text)
        before = _matcher(text, exact)
        for candidate in self._candidates(text):
            after = (lambda name: False) if candidate is None else _matcher(candidate, exact)
            if all(before(old) == after(new) for old, new in self._kept):
                return candidate
        raise UnsupportedModelError(
            f'the quantisation settings hold "{text}" in {where}, which singles out blocks in a '
            "way that cannot be renumbered. Write it as one entry per block, or quantise the "
            "pruned model instead."
        )

    def _candidates(self, text: str) -> Iterator[str | None]:
        """What an entry may become; None where it goes."""
        for pattern in (self._in_list, _DOTTED_NUMBER.search):
            found = pattern(text)
            if found:
                new = self.rename(f"{self.lists[0]}.{int(found[1])}")
                yield (
                    None
                    if new is None
                    else (text[: found.start(1)] + new.rpartition(".")[2] + text[found.end(1) :])
                )
        yield text

    def _in_list(self, text: str) -> re.Match[str] | None:
        """Where a text names a block of the list by its index."""
        last = {path.rpartition(".")[2] for path in self.lists}
        names = "|".join(map(re.escape, sorted(last)))
        return re.search(rf"(?:^|[^\w]|\\.)(?:{names})\\?\.(\d+)(?![\w*+?{{])", text)


_DOTTED_NUMBER = re.compile(r"(?:^|\.)(\d+)(?=\\?\.|\$|$)")


def _stays(new: Any, old: Any) -> bool:
    return new is not None or old is None


def _matcher(text: str, exact: bool) -> Matches:
    """Which modules an entry means.

    Args:
        text: The entry.
        exact: Whether names mean themselves alone, as compressed-tensors has it; else they mean
            what lies below them too, are patterns as well, and may be the end of a name, as
            transformers has it.
    """
    for mark in ("re:", "+:", "-:"):
        if text.startswith(mark):
            return _pattern(text.removeprefix(mark), "")
    if exact:
        return lambda name: name == text
    if re.fullmatch(r"[\w.-]+", text):
        below = text + "."
        return lambda name: name.startswith(below) or name.endswith(text)
    boundary = _pattern(text, r"(?:(?<=\.)|(?=\.|$))")
    return lambda name: boundary(name) or name.endswith(text)


def _pattern(text: str, boundary: str) -> Matches:
    try:
        compiled = re.compile(f"(?:{text}){boundary}")
    except re.error:
        # Some libraries write shell patterns: *self_attn*.
        return lambda name: fnmatch.fnmatchcase(name, text)
    return lambda name: compiled.match(name) is not None


def module_names(tensors: Iterable[str], modules: Iterable[str]) -> frozenset[str]:
    """Names that settings may mean: those of the model, and those of what the files hold."""
    names = {name for name in modules if name}
    for tensor in tensors:
        parts = tensor.split(".")
        names.update(".".join(parts[:end]) for end in range(1, len(parts)))
    return frozenset(names)


def copy_settings(source: Path, folder: Path, renumbering: Renumbering) -> Sequence[str]:
    """Carry over the settings that lie beside the weights, renumbered.

    Raises:
        UnsupportedModelError: If an entry cannot be renumbered.
    """
    copied = []
    for name in FILES:
        if (source / name).is_file():
            try:
                value = json.loads((source / name).read_text(encoding="utf-8"))
            except ValueError:
                continue
            if isinstance(value, dict):
                edited = renumbering.settings(value)
                (folder / name).write_text(json.dumps(edited, indent=2) + "\n", encoding="utf-8")
                copied.append(name)
    return copied
