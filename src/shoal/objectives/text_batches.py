"""Turning tokenised text into micro-batches that score every next token."""

from collections.abc import Sequence

import torch

from shoal.data.encode import EncodedText
from shoal.models.batch import TokenBatch
from shoal.objectives.base import ExampleBatch


def text_batches(texts: Sequence[EncodedText], batch_tokens: int) -> list[ExampleBatch]:
    """Group texts into right-padded micro-batches.

    Args:
        texts: The texts; the last `scored` tokens of each are predicted.
        batch_tokens: Largest number of positions in a micro-batch, unless one text has more.

    Returns:
        Micro-batches in which every segment is one text.
    """
    order = sorted(range(len(texts)), key=lambda i: (-len(texts[i].tokens), i))
    batches: list[ExampleBatch] = []
    start = 0
    while start < len(order):
        longest = len(texts[order[start]].tokens)
        count = max(1, batch_tokens // longest)
        group = order[start : start + count]
        batches.append(ExampleBatch(_collate([texts[i] for i in group], longest), tuple(group)))
        start += count
    return batches


def _collate(texts: Sequence[EncodedText], width: int) -> TokenBatch:
    ids = torch.zeros(len(texts), width, dtype=torch.long)
    owner = torch.full((len(texts), width), -1)
    rows, targets, segment = [], [], []
    for i, text in enumerate(texts):
        tokens = torch.tensor(text.tokens)
        first = len(tokens) - text.scored
        ids[i, : len(tokens)] = tokens
        owner[i, : len(tokens)] = i
        rows.append(torch.arange(first - 1, len(tokens) - 1) + i * width)
        targets.append(tokens[first:])
        segment.append(torch.full((text.scored,), i))
    total = torch.cat(rows)
    return TokenBatch(
        input_ids=ids,
        rows=total,
        pick=torch.arange(len(total)),
        targets=torch.cat(targets),
        segment=torch.cat(segment),
        num_segments=len(texts),
        owner=owner,
    )
