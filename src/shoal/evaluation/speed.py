"""How fast and how large: prefill and cached decode with warm-up, parameters, bytes, memory."""

import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from pydantic import BaseModel, ConfigDict
from transformers import DynamicCache, PreTrainedModel

from shoal.models.discover import max_positions

T = TypeVar("T")

BATCH_SIZES = (1, 4)
PROMPT = 128
NEW_TOKENS = 16
REPEATS = 3


class Speed(BaseModel):
    """Tokens per second at one batch size.

    Attributes:
        batch_size: Sequences at once.
        prefill: Prompt tokens per second, without a cache before them.
        decode: New tokens per second with a KV cache, over all sequences.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    batch_size: int
    prefill: float
    decode: float


class Size(BaseModel):
    """How large a model is.

    Attributes:
        parameters: Number of parameters, shared ones once.
        disk_bytes: Bytes of the checkpoint's weight files; None for a model without files.
        packed: Whether those files hold packed (GGUF) weights, which are smaller than these.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    parameters: int
    disk_bytes: int | None
    packed: bool = False


def size(model: PreTrainedModel, folder: Path | None = None) -> Size:
    """Parameters of a model, and bytes of its weight files."""
    disk, packed = None, False
    if folder is not None:
        files = [*folder.glob("*.safetensors"), *folder.glob("*.gguf")]
        disk, packed = sum(f.stat().st_size for f in files), any(folder.glob("*.gguf"))
    count = sum(p.numel() for p in model.parameters())
    return Size(parameters=count, disk_bytes=disk, packed=packed)


def peak_memory(device: torch.device) -> int:
    """Most bytes that this process (or its accelerator) has held so far."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def speed_of(
    models: Sequence[PreTrainedModel],
    *,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    prompt: int = PROMPT,
    new_tokens: int = NEW_TOKENS,
    repeats: int = REPEATS,
) -> list[list[Speed]]:
    """Time models side by side.

    Every repeat times all models in turn, so that a busy machine slows them alike; the first round
    warms up and is thrown away; the median of the others counts.

    Args:
        models: The models, on their devices.
        batch_sizes: Sequences at once.
        prompt: Tokens per prompt; fewer where a model has not so many positions.
        new_tokens: Tokens decoded one at a time after it.
        repeats: Timed rounds.

    Returns:
        For each model, its speed at each batch size.
    """
    for model in models:
        positions = max_positions(model.config)
        if positions is not None:
            prompt = max(1, min(prompt, positions - new_tokens))
    found: list[list[Speed]] = [[] for _ in models]
    for batch in batch_sizes:
        times: list[list[tuple[float, float]]] = [[] for _ in models]
        for turn in range(repeats + 1):
            for place, model in enumerate(models):
                taken = _time(model, batch, prompt, new_tokens)
                if turn > 0:
                    times[place].append(taken)
        for place in range(len(models)):
            prefill = statistics.median(t[0] for t in times[place])
            decode = statistics.median(t[1] for t in times[place])
            found[place].append(
                Speed(
                    batch_size=batch,
                    prefill=batch * prompt / prefill,
                    decode=batch * new_tokens / decode,
                )
            )
    return found


def _time(model: PreTrainedModel, batch: int, prompt: int, new_tokens: int) -> tuple[float, float]:
    device = model.get_input_embeddings().weight.device
    vocabulary = model.get_input_embeddings().weight.shape[0]
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(vocabulary, (batch, prompt), generator=generator).to(device)
    cache = DynamicCache(config=model.config)
    with torch.inference_mode():
        prefill, output = _timed(
            device, lambda: model(ids, cache=cache, use_cache=True, logits_to_keep=1)
        )

        def decode() -> None:
            token = output.logits[:, -1:].argmax(-1)
            for _ in range(new_tokens):
                step = model(token, cache=cache, use_cache=True)
                token = step.logits[:, -1:].argmax(-1)

        taken, _ = _timed(device, decode)
    return prefill, taken


def _timed(device: torch.device, work: Callable[[], T]) -> tuple[float, T]:
    _synchronise(device)
    begin = time.perf_counter()
    result = work()
    _synchronise(device)
    return time.perf_counter() - begin, result


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
