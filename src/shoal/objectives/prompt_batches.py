"""Prompts as micro-batches: padded on the left where the model takes that, else of equal length."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch
from torch import Tensor

from shoal.models.dense import DenseModel
from shoal.models.tail import tolerance
from shoal.objectives.decoding import Decoding, write

log = logging.getLogger(__name__)

SAMPLE = 2
"""Prompts that are compared from each end, the shortest and the longest."""

STEPS = 4
"""Tokens that are written in the comparison; the later ones come out of the KV cache."""

Prompt = tuple[int, ...]


@dataclass(frozen=True)
class PromptBatch:
    """A micro-batch of prompts.

    Attributes:
        input_ids: Token ids [B, T], padded on the left.
        attention_mask: 1 where a token is real [B, T].
        examples: For each prompt, its index in the calibration set.
    """

    input_ids: Tensor
    attention_mask: Tensor
    examples: tuple[int, ...]


def prompt_batches(
    prompts: Sequence[Prompt], batch_tokens: int, new_tokens: int, pad: int, *, padded: bool
) -> list[PromptBatch]:
    """Group prompts into micro-batches, the longest first.

    Args:
        prompts: Their tokens.
        batch_tokens: Largest number of positions in a micro-batch, those of the new tokens
            included, unless one prompt has more.
        new_tokens: Tokens that will follow each prompt.
        pad: The token to pad with.
        padded: Whether prompts of different lengths may share a batch.
    """
    order = sorted(range(len(prompts)), key=lambda i: (-len(prompts[i]), i))
    groups = [order] if padded else [list(g) for _, g in groupby(order, lambda i: len(prompts[i]))]
    batches: list[PromptBatch] = []
    for group in groups:
        start = 0
        while start < len(group):
            count = max(1, batch_tokens // (len(prompts[group[start]]) + new_tokens))
            batches.append(_collate(prompts, group[start : start + count], pad))
            start += count
    return batches


def padding_agrees(dense: DenseModel, prompts: Sequence[Prompt], decoding: Decoding) -> bool:
    """Compare prompts that share a left-padded batch with each alone, under the dense model.

    Args:
        dense: The model.
        prompts: The prompts of the objective.
        decoding: How they will be continued.

    Returns:
        Whether the most unequal prompts get the same logits both ways, from the prompt and from
        the KV cache. Where all lengths are equal nothing is padded, and so it is true.
    """
    order = sorted(set(prompts), key=lambda p: (len(p), p))
    sample = list(dict.fromkeys([*order[:SAMPLE], *order[-SAMPLE:]]))
    if len(sample[0]) == len(sample[-1]):
        return True
    steps = replace(decoding, new_tokens=min(STEPS, decoding.new_tokens), eos=(), stops=())
    alone = [_logits(dense, [prompt], steps) for prompt in sample]
    try:
        together = _logits(dense, sample, steps)
    except (RuntimeError, TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
        log.info("prompts cannot be padded: %s", error)
        return False
    return all(_agree(together[i], one[0], dense.dtype) for i, one in enumerate(alone))


def _logits(dense: DenseModel, prompts: Sequence[Prompt], decoding: Decoding) -> Tensor:
    """Next-token logits of prompts in one batch [B, steps, V]."""
    batch = _collate(prompts, range(len(prompts)), decoding.pad)
    with torch.inference_mode():
        written = write(
            dense.module,
            batch.input_ids,
            batch.attention_mask,
            decoding,
            dense.require_tokenizer(),
            keep_logits=True,
        )
    return torch.stack(written.logits, 1)


def _agree(found: Tensor, expected: Tensor, dtype: torch.dtype) -> bool:
    """Compare logits [steps, V] as long as the same tokens were read."""
    same = (found.argmax(-1) == expected.argmax(-1)).long().cumprod(0)
    steps = 1 + int(same[:-1].sum())
    found, expected = found[:steps], expected[:steps]
    size = max(1.0, float(expected.abs().amax()))
    return bool((found - expected).abs().max() <= tolerance(dtype) * size)


def _collate(prompts: Sequence[Prompt], examples: Sequence[int], pad: int) -> PromptBatch:
    width = max(len(prompts[i]) for i in examples)
    ids = torch.full((len(examples), width), pad, dtype=torch.long)
    mask = torch.zeros(len(examples), width, dtype=torch.long)
    for row, i in enumerate(examples):
        start = width - len(prompts[i])
        ids[row, start:] = torch.tensor(prompts[i])
        mask[row, start:] = 1
    return PromptBatch(ids, mask, tuple(examples))
