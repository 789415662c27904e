"""Whether a model gives the same answers when the choices of an item share one row."""

import logging
from collections.abc import Sequence

import torch
from torch import Tensor

from shoal.data.encode import EncodedItem
from shoal.models.dense import DenseModel
from shoal.models.tail import tolerance
from shoal.objectives.choice_batches import choice_batches

log = logging.getLogger(__name__)

SAMPLE = 4
"""Items that are compared: the widest ones, where a window or a position table ends first."""


def packing_agrees(dense: DenseModel, items: Sequence[EncodedItem], batch_tokens: int) -> bool:
    """Compare packed rows with one row per choice under the model's own forward.

    Args:
        dense: The model.
        items: The items of the objective.
        batch_tokens: Positions per micro-batch.

    Returns:
        Whether every choice of the widest items scores the same both ways.
    """
    width = [sum(len(c.tokens) for c in item.choices) for item in items]
    widest = sorted(range(len(items)), key=lambda i: -width[i])[:SAMPLE]
    sample = [items[i] for i in widest]
    try:
        packed = _choice_sums(dense, sample, batch_tokens, packed=True)
    except (RuntimeError, TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
        log.info("choices cannot share a row: %s", error)
        return False
    rows = _choice_sums(dense, sample, batch_tokens, packed=False)
    size = max(1.0, float(rows.abs().max()))
    return bool((packed - rows).abs().max() <= tolerance(dense.dtype) * size)


def _choice_sums(
    dense: DenseModel, items: Sequence[EncodedItem], batch_tokens: int, *, packed: bool
) -> Tensor:
    """Summed log-likelihood of every choice of every item, in order."""
    found: dict[int, Tensor] = {}
    for batch in choice_batches(items, batch_tokens, packed=packed):
        tokens = batch.tokens.to(dense.device)
        with torch.inference_mode():
            logits = dense.module(**tokens.forward_arguments(dense.dtype)).logits
        table = logits.reshape(-1, logits.shape[-1])[tokens.rows].float().log_softmax(-1)
        sums = tokens.segment_sums(table[tokens.pick, tokens.targets]).cpu()
        for place, example in enumerate(batch.examples):
            present = batch.layout.present[place]
            found[example] = sums[batch.layout.segment[place][present]]
    return torch.cat([found[i] for i in range(len(items))])
