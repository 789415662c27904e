"""Turning multiple-choice items into micro-batches, with each prompt run once.

Packed, an item is a tree: the prompt that its choices share, then the rest of each choice side by
side. Positions restart after the prompt for every choice, and a tree-shaped attention mask lets a
choice see the prompt and itself only. Several trees stand in one row, blind to each other, which
leaves next to no padding:

    input   p q | a b | c d      position  0 1 | 2 3 | 2 3      c attends to p, q, c

Not every architecture can be told positions and masks (those that derive them from padding, or
carry a recurrent state); for them every choice becomes a row of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from shoal.data.encode import EncodedItem
from shoal.models.batch import TokenBatch
from shoal.objectives.base import ExampleBatch

ROW = 256
"""Width of a packed row. Attention costs grow with it, padding shrinks."""


@dataclass(frozen=True)
class ChoiceLayout:
    """Which segment is which choice of which item.

    Attributes:
        segment: Segment of each choice [items, choices], 0 where there is none.
        present: Whether there is such a choice [items, choices].
        gold: Index of the right choice [items].
        num_bytes: UTF-8 bytes of what is scored of each choice [items, choices].
        num_chars: Characters of each choice, without its leading space [items, choices].
    """

    segment: Tensor
    present: Tensor
    gold: Tensor
    num_bytes: Tensor
    num_chars: Tensor


@dataclass(frozen=True)
class _Tree:
    """A trunk of tokens, then branches that all follow it.

    Attributes:
        trunk: The shared tokens.
        branches: For each branch its tokens after the trunk, and how many of the last are scored.
        segment: Segment of the first branch; the others follow.
        owner: Place of the item in the micro-batch.
    """

    trunk: tuple[int, ...]
    branches: tuple[tuple[tuple[int, ...], int], ...]
    segment: int = 0
    owner: int = 0

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
        packed: Whole items side by side in a row, rather than one choice per row.

    Returns:
        Micro-batches in which every segment is one choice.
    """
    trees = [_trees(item, packed) for item in items]
    size = [sum(t.width for t in group) for group in trees]
    widest = [max(t.width for t in group) for group in trees]
    order = sorted(range(len(items)), key=lambda i: (-widest[i], i))
    batches: list[ExampleBatch] = []
    group: list[int] = []
    for i in order:
        if packed:
            full = sum(size[j] for j in group) + size[i] > batch_tokens
        else:
            height = sum(len(trees[j]) for j in group) + len(trees[i])
            full = bool(group) and height * widest[group[0]] > batch_tokens
        if group and full:
            batches.append(_batch(group, trees, items, packed))
            group = []
        group.append(i)
    if group:
        batches.append(_batch(group, trees, items, packed))
    return batches


def _trees(item: EncodedItem, packed: bool) -> list[_Tree]:
    if not packed:
        return [_Tree(c.tokens[:1], ((c.tokens[1:], c.scored),)) for c in item.choices]
    shared = 0
    # The trunk ends before the first scored token of any choice.
    limit = min(len(c.tokens) - c.scored for c in item.choices)
    first = item.choices[0].tokens
    while shared < limit and all(c.tokens[shared] == first[shared] for c in item.choices):
        shared += 1
    if shared == 0:
        return _trees(item, packed=False)
    return [_Tree(first[:shared], tuple((c.tokens[shared:], c.scored) for c in item.choices))]


def _batch(
    group: Sequence[int],
    trees: Sequence[Sequence[_Tree]],
    items: Sequence[EncodedItem],
    packed: bool,
) -> ExampleBatch:
    flat: list[_Tree] = []
    most = max(len(items[i].choices) for i in group)
    shape = (len(group), most)
    segment = torch.zeros(shape, dtype=torch.long)
    present = torch.zeros(shape, dtype=torch.bool)
    num_bytes, num_chars = (torch.ones(shape, dtype=torch.long) for _ in range(2))
    count = 0
    for at, i in enumerate(group):
        choices = items[i].choices
        segment[at, : len(choices)] = torch.arange(count, count + len(choices))
        present[at, : len(choices)] = True
        num_bytes[at, : len(choices)] = torch.tensor([c.num_bytes for c in choices])
        num_chars[at, : len(choices)] = torch.tensor([max(1, c.num_chars) for c in choices])
        for tree in trees[i]:
            flat.append(replace(tree, segment=count, owner=at))
            count += len(tree.branches)
    gold = torch.tensor([items[i].gold for i in group])
    rows = _side_by_side(flat) if packed else [[tree] for tree in flat]
    layout = ChoiceLayout(segment, present, gold, num_bytes, num_chars)
    return ExampleBatch(_collate(rows, count, packed), tuple(group), layout)


def _side_by_side(trees: Sequence[_Tree]) -> list[list[_Tree]]:
    """Fill rows as wide as the widest tree, or about `ROW`, first fit; trees come widest first."""
    width = max(ROW, max(tree.width for tree in trees))
    rows: list[list[_Tree]] = []
    room: list[int] = []
    for tree in sorted(trees, key=lambda t: -t.width):
        place = next((r for r, left in enumerate(room) if left >= tree.width), None)
        if place is None:
            rows.append([])
            room.append(width)
            place = len(rows) - 1
        rows[place].append(tree)
        room[place] -= tree.width
    return rows


def _collate(rows: Sequence[Sequence[_Tree]], num_segments: int, packed: bool) -> TokenBatch:
    width = max(sum(tree.width for tree in row) for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    positions = torch.arange(width).repeat(len(rows), 1)
    attend = torch.eye(width, dtype=torch.bool).repeat(len(rows), 1, 1)
    owner = torch.full((len(rows), width), -1)
    scored = _Scored(width)
    for r, row in enumerate(rows):
        start = 0
        for tree in row:
            _lay(tree, r, start, ids, positions, attend, scored)
            owner[r, start : start + tree.width] = tree.owner
            start += tree.width
    return TokenBatch(
        input_ids=ids,
        rows=torch.tensor(list(scored.row_of)),
        pick=torch.tensor(scored.pick),
        targets=torch.tensor(scored.targets),
        segment=torch.tensor(scored.segment),
        num_segments=num_segments,
        position_ids=positions if packed else None,
        attend=attend if packed else None,
        owner=owner,
    )


class _Scored:
    """The scored tokens of a batch, and the distinct positions that predict them."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.row_of: dict[int, int] = {}
        self.pick: list[int] = []
        self.targets: list[int] = []
        self.segment: list[int] = []

    def add(self, row: int, position: int, target: int, segment: int) -> None:
        flat = row * self.width + position
        self.pick.append(self.row_of.setdefault(flat, len(self.row_of)))
        self.targets.append(target)
        self.segment.append(segment)


def _lay(
    tree: _Tree, r: int, start: int, ids: Tensor, positions: Tensor, attend: Tensor, out: _Scored
) -> None:
    """Write one tree into row `r` from column `start`."""
    trunk, end = len(tree.trunk), start + tree.width
    ids[r, start : start + trunk] = torch.tensor(tree.trunk)
    positions[r, start:end] = torch.arange(tree.width)
    attend[r, start:end, start:end] = torch.ones(tree.width, tree.width, dtype=torch.bool).tril()
    at = start + trunk
    for i, (tokens, scored) in enumerate(tree.branches):
        after = at + len(tokens) - 1
        ids[r, at:after] = torch.tensor(tokens[:-1], dtype=torch.long)
        positions[r, at:after] = torch.arange(trunk, trunk + len(tokens) - 1)
        # A branch does not see the branches before it.
        attend[r, at:after, start + trunk : at] = False
        for offset in range(len(tokens) - scored, len(tokens)):
            # The token before the branch's first is the trunk's last.
            before = at + offset - 1 if offset else start + trunk - 1
            out.add(r, before, tokens[offset], tree.segment + i)
        at = after
