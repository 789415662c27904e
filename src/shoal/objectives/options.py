"""How an objective is prepared: tokenisation, micro-batches, parts."""

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from shoal.core.partition import parts_for, random_parts
from shoal.data.encode import Tokenisation
from shoal.objectives.base import Batch

SomeBatch = TypeVar("SomeBatch", bound=Batch)
"""A dataclass with the field `examples`."""


@dataclass(frozen=True)
class BuildOptions:
    """Settings that all objectives share.

    Attributes:
        tokenisation: The policy for special tokens.
        batch_tokens: Positions per micro-batch.
        length: Tokens per block of text.
        limit: Number of blocks of text; items are limited when they are loaded.
        pack_choices: Run the choices of an item as one row; None asks the model's own forward.
        racing: Split the examples into random parts, for racing.
        seed: Seed of the parts.
        artifacts: Where things that are dear to compute are kept.
    """

    tokenisation: Tokenisation
    batch_tokens: int = 2048
    length: int = 512
    limit: int | None = None
    pack_choices: bool | None = None
    racing: bool = False
    seed: int = 0
    artifacts: MutableMapping[str, bytes] = field(default_factory=dict)


def in_parts(
    count: int, options: BuildOptions, make: Callable[[Sequence[int]], list[SomeBatch]]
) -> tuple[list[SomeBatch], tuple[tuple[int, ...], ...]]:
    """Make the micro-batches of every part.

    Args:
        count: Number of examples.
        options: Says whether to split them, and in which order.
        make: Makes micro-batches of some examples, numbered by their place among those.

    Returns:
        All micro-batches with the examples' own numbers, and the indices of those of each part.
    """
    batches: list[SomeBatch] = []
    parts: list[tuple[int, ...]] = []
    wanted = parts_for(count) if options.racing else 1
    for part in random_parts(count, wanted, options.seed):
        made = [_numbered(b, tuple(part[e] for e in b.examples)) for b in make(part)]
        parts.append(tuple(range(len(batches), len(batches) + len(made))))
        batches += made
    return batches, tuple(parts)


def _numbered(batch: Any, examples: tuple[int, ...]) -> Any:
    return replace(batch, examples=examples)
