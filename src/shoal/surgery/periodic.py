"""Periodic schedules of block kinds that a config states as integers, and have no list form.

After blocks are removed the kinds of those that stay may or may not follow a period again; if they
do, these are the integers that say so.
"""

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedConfig

PERIODS = (
    ("attn_layer_period", "attn_layer_offset"),
    ("expert_layer_period", "expert_layer_offset"),
)
"""Fields (p, o) that mark the blocks i with i mod p = o."""

INTERVAL = ("moe_layer_interval", "moe_layer_start_index", "moe_layer_end_index")
"""Fields (n, a, b) that mark the blocks a <= i <= b with (i + 1) mod n = 0."""


def marked(config: PreTrainedConfig, depth: int) -> dict[tuple[str, ...], list[bool]]:
    """For each periodic schedule of a config, by its fields, which blocks it marks."""
    found: dict[tuple[str, ...], list[bool]] = {}
    for names in PERIODS:
        values: list[Any] = [getattr(config, name, None) for name in names]
        if not any(v is None for v in values) and not _is_list_form(config):
            period, offset = map(int, values)
            found[names] = [i % period == offset for i in range(depth)]
    interval = getattr(config, INTERVAL[0], None)
    if isinstance(interval, int):
        first, last = (getattr(config, name) for name in INTERVAL[1:])
        last = depth - 1 if last < 0 else last
        found[INTERVAL] = [(i + 1) % interval == 0 and first <= i <= last for i in range(depth)]
    return found


def fit(names: tuple[str, ...], marks: Sequence[bool]) -> dict[str, Any] | None:
    """The integers of a schedule that marks exactly these blocks; None where there are none.

    Args:
        names: The schedule's fields.
        marks: For each block, whether it is to be marked.
    """
    places = [i for i, mark in enumerate(marks) if mark]
    return _fit_interval(marks, places) if names == INTERVAL else _fit_period(names, marks, places)


def _fit_period(
    names: tuple[str, ...], marks: Sequence[bool], places: list[int]
) -> dict[str, Any] | None:
    period, offset = len(marks) + 1, len(marks)  # Marks none.
    if places:
        offset = places[0]
        period = places[1] - offset if len(places) > 1 else len(marks) + 1
    if offset >= period or places != list(range(offset, len(marks), period)):
        return None
    return dict(zip(names, (period, offset), strict=True))


def _fit_interval(marks: Sequence[bool], places: list[int]) -> dict[str, Any] | None:
    if not places:
        return dict(zip(INTERVAL, (1, len(marks), len(marks) - 1), strict=True))
    step = places[1] - places[0] if len(places) > 1 else 1
    if places != list(range(places[0], places[-1] + 1, step)) or (places[0] + 1) % step:
        return None
    return dict(zip(INTERVAL, (step, places[0], places[-1]), strict=True))


def _is_list_form(config: PreTrainedConfig) -> bool:
    """Whether the kinds are stored block by block, so that the period only made the list."""
    return isinstance(vars(config).get("layers_block_type"), list)
