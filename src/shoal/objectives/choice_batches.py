"""Turning multiple-choice items into micro-batches, with each prompt run once.

Packed, an item is one row: the prompt that its choices share, then the rest of each choice side by
side. Positions restart after the prompt for every choice, and a tree-shaped attention mask lets a
choice see the prompt and itself only:

    input   p q | a b | c d      position  0 1 | 2 3 | 2 3      c attends to p, q, c

Not every architecture can be told positions and masks (those that derive them from padding, or
carry a recurrent state); for them every choice becomes a row of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shoal.data.encode import EncodedItem
from shoal.models.batch import TokenBatch
from shoal.objectives.base import ExampleBatch


@dataclass(frozen=True)
class ChoiceLayout:
    """Which segment is which choice of which item.

    Attributes:
        segment: Segment of each choice [items, choices], 0 where there is none.
        present: Whether there is such a choice [items, choices].
        gold: Index of the right choice [items].
        num_bytes: UTF-8 bytes of each choice's text [items, choices].
    """

    segment: Tensor
    present: Tensor
    gold: Tensor
    num_bytes: Tensor


@dataclass(frozen=True)
class _Row:
    """One row of tokens: a trunk, then branches that all follow it."""

    trunk: tuple[int, ...]
    branches: tuple[tuple[tuple[int, ...], int], ...]
    """For each branch its tokens after the trunk, and how many of the last are scored."""

    @property
    def width(self) -> int:
        # The last token of a branch predicts nothing.
        return len(self.trunk) + sum(len(tokens) - 1 for tokens, _ in self.branches)


def choice_batches(
    items: Sequence[EncodedItem], batch_tokens: int, *, packed: bool
) -> list[ExampleBatch]:
    """Group items into right-padded micro-batches.

    Args:
        items: The items.
        batch_tokens: Largest number of positions in a micro-batch, unless one item has more.
        packed: One row per item, rather than one per choice.

    Returns:
        Micro-batches in which every segment is one choice.
    """
    rows = [_rows(item, packed) for item in items]
    width = [max(r.width for r in group) for group in rows]
    order = sorted(range(len(items)), key=lambda i: (-width[i], i))
    batches: list[ExampleBatch] = []
    group: list[int] = []
    for i in order:
        height = sum(len(rows[j]) for j in group) + len(rows[i])
        if group and height * width[group[0]] > batch_tokens:
            batches.append(_batch(group, rows, items, packed))
            group = []
        group.append(i)
    if group:
        batches.append(_batch(group, rows, items, packed))
    return batches


def _rows(item: EncodedItem, packed: bool) -> list[_Row]:
    if not packed:
        return [_Row(c.tokens[:1], ((c.tokens[1:], c.scored),)) for c in item.choices]
    shared = 0
    # The trunk ends before the first scored token of any choice.
    limit = min(len(c.tokens) - c.scored for c in item.choices)
    first = item.choices[0].tokens
    while shared < limit and all(c.tokens[shared] == first[shared] for c in item.choices):
        shared += 1
    if shared == 0:
        return _rows(item, packed=False)
    return [_Row(first[:shared], tuple((c.tokens[shared:], c.scored) for c in item.choices))]


def _batch(
    group: Sequence[int],
    rows: Sequence[Sequence[_Row]],
    items: Sequence[EncodedItem],
    packed: bool,
) -> ExampleBatch:
    flat = [row for i in group for row in rows[i]]
    tokens = _collate(flat, tree=packed)
    most = max(len(items[i].choices) for i in group)
    shape = (len(group), most)
    segment = torch.zeros(shape, dtype=torch.long)
    present = torch.zeros(shape, dtype=torch.bool)
    num_bytes = torch.ones(shape, dtype=torch.long)
    next_segment = 0
    for at, i in enumerate(group):
        count = len(items[i].choices)
        segment[at, :count] = torch.arange(next_segment, next_segment + count)
        present[at, :count] = True
        num_bytes[at, :count] = torch.tensor([max(1, c.num_bytes) for c in items[i].choices])
        next_segment += count
    gold = torch.tensor([items[i].gold for i in group])
    return ExampleBatch(tokens, tuple(group), ChoiceLayout(segment, present, gold, num_bytes))


def _collate(rows: Sequence[_Row], tree: bool) -> TokenBatch:
    width = max(row.width for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    positions = torch.arange(width).repeat(len(rows), 1)
    attend = torch.ones(width, width, dtype=torch.bool).tril().repeat(len(rows), 1, 1)
    wanted: list[int] = []
    row_of: dict[int, int] = {}
    pick, targets, segment = [], [], []
    branch_index = 0
    for r, row in enumerate(rows):
        trunk = len(row.trunk)
        ids[r, :trunk] = torch.tensor(row.trunk)
        start = trunk
        for tokens, scored in row.branches:
            end = start + len(tokens) - 1
            ids[r, start:end] = torch.tensor(tokens[:-1], dtype=torch.long)
            positions[r, start:end] = torch.arange(trunk, trunk + len(tokens) - 1)
            attend[r, start:end, trunk:start] = False
            for offset in range(len(tokens) - scored, len(tokens)):
                # The token before the branch's first is the trunk's last.
                before = start + offset - 1 if offset else trunk - 1
                flat = r * width + before
                if flat not in row_of:
                    row_of[flat] = len(wanted)
                    wanted.append(flat)
                pick.append(row_of[flat])
                targets.append(tokens[offset])
                segment.append(branch_index)
            branch_index += 1
            start = end
    return TokenBatch(
        input_ids=ids,
        rows=torch.tensor(wanted),
        pick=torch.tensor(pick),
        targets=torch.tensor(targets),
        segment=torch.tensor(segment),
        num_segments=branch_index,
        position_ids=positions if tree else None,
        attend=attend if tree else None,
    )
