"""What is removed from a model: sites and masks.

A block is its attention and its MLP, so a mask that removes both removes the block, and is written
so. Indices are zero-based and always those of the dense model. A mask reads `-[9-12,22.attn]` as
text and `{"depth": 30, "removed": ["9", "10", "11", "12", "22.attn"]}` as JSON; both round-trip.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, Self

from shoal.core.errors import UsageError


class Part(StrEnum):
    """The part of a decoder layer that a site names."""

    BLOCK = "block"
    ATTN = "attn"
    MLP = "mlp"


@dataclass(frozen=True, order=True, slots=True)
class Site:
    """One removable place: a whole block or one of its two sub-layers.

    Attributes:
        layer: Index of the block in the dense model.
        part: Which part of the block.
    """

    layer: int
    part: Part = Part.BLOCK

    def __str__(self) -> str:
        return str(self.layer) if self.part is Part.BLOCK else f"{self.layer}.{self.part}"

    @classmethod
    def parse(cls, text: str) -> "Site":
        """Read `12`, `12.attn` or `12.mlp`.

        Raises:
            UsageError: If the text is none of these.
        """
        match = re.fullmatch(r"\s*(\d+)(?:\.(attn|mlp))?\s*", text)
        if match is None:
            raise UsageError(
                f'"{text}" names no site. Write a block as "12", its attention as "12.attn", '
                'its MLP as "12.mlp".'
            )
        return cls(int(match[1]), Part(match[2]) if match[2] else Part.BLOCK)

    @property
    def sublayers(self) -> tuple["Site", ...]:
        """The sub-layers that this site consists of: itself, or a block's attention and MLP."""
        if self.part is not Part.BLOCK:
            return (self,)
        return (Site(self.layer, Part.ATTN), Site(self.layer, Part.MLP))

    @property
    def position(self) -> int:
        """Where the site begins in the sequence attention 0, MLP 0, attention 1, MLP 1, ..."""
        return 2 * self.layer + (self.part is Part.MLP)


def sublayers(sites: Iterable[Site]) -> frozenset[Site]:
    """The sub-layers that some sites consist of."""
    return frozenset(s for site in sites for s in site.sublayers)


@dataclass(frozen=True, slots=False)
class Mask:
    """A set of removed sites of a model with `depth` blocks.

    Example:
        >>> mask = Mask.of(30, [9, 10, 11, 22])
        >>> str(mask), mask.num_blocks, mask.kept[:3]
        ('-[9-11,22]', 4, (0, 1, 2))
        >>> Mask.parse(str(mask), depth=30) == mask
        True

    Attributes:
        depth: Number of blocks of the dense model.
        removed: The removed sites.
    """

    depth: int
    removed: frozenset[Site] = frozenset()

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise UsageError(f"a mask needs a depth of at least 1, got {self.depth}.")
        whole = set()
        for site in self.removed:
            if not 0 <= site.layer < self.depth:
                raise UsageError(
                    f"block {site.layer} does not exist: the model has {self.depth} blocks, "
                    f"0 to {self.depth - 1}."
                )
            if site.part is Part.BLOCK:
                whole.add(site.layer)
        double = sorted(s for s in self.removed if s.part is not Part.BLOCK and s.layer in whole)
        if double:
            raise UsageError(f"{double[0]} is removed twice: block {double[0].layer} goes whole.")
        if len(self.removed) > len(whole):
            object.__setattr__(self, "removed", _joined(self.removed))

    @classmethod
    def dense(cls, depth: int) -> "Mask":
        """The mask that removes nothing."""
        return cls(depth)

    @classmethod
    def of(cls, depth: int, blocks: Iterable[int]) -> "Mask":
        """The mask that removes whole blocks."""
        return cls(depth, frozenset(Site(b) for b in blocks))

    @cached_property
    def blocks(self) -> tuple[int, ...]:
        """The blocks that are removed whole, ascending."""
        return tuple(sorted(s.layer for s in self.removed if s.part is Part.BLOCK))

    @cached_property
    def kept(self) -> tuple[int, ...]:
        """The blocks that stay, wholly or in part, ascending."""
        gone = set(self.blocks)
        return tuple(i for i in range(self.depth) if i not in gone)

    @cached_property
    def sublayers(self) -> frozenset[Site]:
        """Everything that is removed, blocks taken apart into attention and MLP."""
        return sublayers(self.removed)

    @cached_property
    def places(self) -> frozenset[int]:
        """Where the removed sub-layers stand in the row attention 0, MLP 0, attention 1, ..."""
        return frozenset(site.position for site in self.sublayers)

    @property
    def num_blocks(self) -> int:
        """How many blocks are removed whole."""
        return len(self.blocks)

    @property
    def whole_blocks_only(self) -> bool:
        """Whether every removed site is a whole block."""
        return len(self.blocks) == len(self.removed)

    def without(self, sites: Iterable[Site]) -> "Mask":
        """This mask with more sites removed."""
        return self._of(self.sublayers | sublayers(sites))

    def restored(self, sites: Iterable[Site]) -> "Mask":
        """This mask with some removed sites put back."""
        return self._of(self.sublayers - sublayers(sites))

    def _of(self, removed: frozenset[Site]) -> Self:
        return type(self)(self.depth, removed)

    def __iter__(self) -> Iterator[Site]:
        return iter(sorted(self.removed))

    def __len__(self) -> int:
        return len(self.removed)

    def __str__(self) -> str:
        runs: list[list[int]] = []
        for block in self.blocks:
            if runs and block == runs[-1][-1] + 1:
                runs[-1].append(block)
            else:
                runs.append([block])
        entries = [(r[0], f"{r[0]}-{r[-1]}" if len(r) > 1 else f"{r[0]}") for r in runs]
        entries += [(s.layer, str(s)) for s in self if s.part is not Part.BLOCK]
        return "-[" + ",".join(text for _, text in sorted(entries)) + "]"

    @classmethod
    def parse(cls, text: str, depth: int) -> "Mask":
        """Read the text form.

        Raises:
            UsageError: If the text is not a mask or names a block outside the model.
        """
        match = re.fullmatch(r"\s*-\[(.*)\]\s*", text)
        if match is None:
            raise UsageError(f'"{text}" is no mask. Write it as "-[9-12,22.attn]".')
        sites: list[Site] = []
        for entry in filter(None, (e.strip() for e in match[1].split(","))):
            span = re.fullmatch(r"(\d+)-(\d+)", entry)
            if span is None:
                sites.append(Site.parse(entry))
                continue
            first, last = int(span[1]), int(span[2])
            if last < first or last >= depth:
                raise UsageError(
                    f'"{entry}" is no range of blocks of a model with {depth} blocks: '
                    "the first and the last block are both included, first <= last."
                )
            sites += [Site(i) for i in range(first, last + 1)]
        return cls(depth, frozenset(sites))

    def to_json(self) -> dict[str, Any]:
        """The JSON form."""
        return {"depth": self.depth, "removed": [str(s) for s in self]}

    @classmethod
    def from_json(cls, value: Any) -> "Mask":
        """Read the JSON form.

        Raises:
            UsageError: If keys are missing or a site is malformed.
        """
        try:
            depth, removed = value["depth"], value["removed"]
        except (TypeError, KeyError) as error:
            raise UsageError(
                f'a mask in JSON is {{"depth": 30, "removed": ["9", "22.attn"]}}, got {value!r}.'
            ) from error
        if not isinstance(depth, int) or not isinstance(removed, list):
            raise UsageError(f"a mask in JSON has an integer depth and a list, got {value!r}.")
        return cls(depth, frozenset(Site.parse(str(s)) for s in removed))


def _joined(sites: frozenset[Site]) -> frozenset[Site]:
    """The same sites, with attention and MLP of a block written as the block."""
    both = {s.layer for s in sites if s.part is Part.ATTN and Site(s.layer, Part.MLP) in sites}
    return frozenset(s for s in sites if s.layer not in both) | frozenset(map(Site, both))
