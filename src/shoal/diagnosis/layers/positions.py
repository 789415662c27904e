"""Which positions of passages are looked at, and means over those of each passage."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from shoal.core.means import mean_by_prompt
from shoal.diagnosis.passages import Passage, lay, passage_batches, row_places
from shoal.diagnosis.spaces import Columns
from shoal.objectives.base import ExampleBatch


def chosen_steps(written: int, positions: int) -> NDArray[np.int64]:
    """Evenly spaced written tokens, from zero, the first and the last among them.

    Args:
        written: Tokens that were written.
        positions: Most steps; a single one is the first.
    """
    count = min(written, positions)
    return np.linspace(0, written - 1, count).round().astype(np.int64)


def thinned_batches(
    passages: Sequence[Passage], positions: int, batch_tokens: int
) -> list[ExampleBatch]:
    """Micro-batches of passages with rows at the chosen steps alone.

    Args:
        passages: The texts.
        positions: Most positions per text.
        batch_tokens: Largest number of positions that run together.
    """
    found = []
    for batch in passage_batches(passages, batch_tokens):
        tokens = batch.tokens
        owners, steps = row_places(batch)
        keep = [
            step in chosen_steps(len(passages[owner].written), positions)
            for owner, step in zip(owners.tolist(), steps.tolist(), strict=True)
        ]
        stay = torch.tensor(keep)
        thinned = replace(
            tokens,
            rows=tokens.rows[stay],
            pick=torch.arange(int(stay.sum())),
            targets=tokens.targets[stay],
            segment=tokens.segment[stay],
        )
        found.append(replace(batch, tokens=thinned))
    return found


def by_prompt(columns: Columns, batch: ExampleBatch, positions: int) -> Columns:
    """Means over the rows of each passage of a micro-batch, in its order [B].

    Args:
        columns: A value per row [R].
        batch: The micro-batch.
        positions: Most rows of a passage.
    """
    segment = batch.tokens.segment.cpu().numpy()
    places = segment, np.arange(len(segment)) - np.searchsorted(segment, segment)
    tables: Columns = {}
    lay(tables, columns, places, (batch.tokens.num_segments, positions))
    return {name: mean_by_prompt(table) for name, table in tables.items()}
