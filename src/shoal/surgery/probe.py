"""Running two models on the same tokens, so that they can be compared."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedModel

from shoal.models.dense import DenseModel
from shoal.models.discover import text_config
from shoal.surgery.fields import read

_WINDOWS = ("sliding_window", "attention_chunk_size", "window_size")
_SHORT = 24
_SMALL_WINDOW = 64


def probe_tokens(dense: DenseModel, batch: int, new_tokens: int = 0) -> torch.Tensor:
    """Random tokens that no special id is among, longer than a small attention window.

    Args:
        dense: The model that they are for.
        batch: Rows.
        new_tokens: Positions to leave free after them.
    """
    text = text_config(dense.config)
    windows = [read(text, name) for name in _WINDOWS]
    small = [w for w in windows if isinstance(w, int) and 0 < w <= _SMALL_WINDOW]
    length = max(small, default=_SHORT - 8) + 8
    limit = read(text, "max_position_embeddings")
    if isinstance(limit, int):
        length = max(2, min(length, limit - new_tokens))
    special: set[Any] = set()
    for config in (dense.config, text):
        for name in list(config):
            if name.endswith("_token_id"):
                value = read(config, name)
                special |= set(value if isinstance(value, list) else [value])
    embeddings: Any = dense.module.get_input_embeddings()
    size = len(embeddings.weight)
    ordinary = torch.tensor([i for i in range(size) if i not in special])
    generator = torch.Generator().manual_seed(batch)
    picks = torch.randint(len(ordinary), (batch, length), generator=generator)
    return ordinary[picks].to(dense.device)


@torch.inference_mode()
def logits_of(model: PreTrainedModel, tokens: torch.Tensor) -> torch.Tensor:
    """The logits at every position, in float32."""
    output = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False)
    logits: torch.Tensor = output.logits.float()
    return logits


@torch.inference_mode()
def greedy(
    model: PreTrainedModel, tokens: torch.Tensor, new_tokens: int, *, use_cache: bool
) -> torch.Tensor:
    """Continue tokens greedily, whatever the model's own generation settings are."""
    generator: Any = model
    with _neutral(generator):
        generated = generator.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=new_tokens,
            do_sample=False,
            use_cache=use_cache,
        )
    continued: torch.Tensor = generated
    return continued


@contextmanager
def _neutral(model: Any) -> Iterator[None]:
    """Put plain generation settings in place for a while: no end token, no penalties."""
    own = model.generation_config
    plain: Any = GenerationConfig
    model.generation_config = plain(pad_token_id=0)
    try:
        yield
    finally:
        model.generation_config = own
