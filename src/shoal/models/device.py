"""Choosing device and dtype."""

import torch

from shoal.core.errors import UsageError

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def pick_device(name: str) -> torch.device:
    """Resolve `auto`, `cpu`, `cuda`, `cuda:N` or `mps`.

    Raises:
        UsageError: If the name is unknown or the device is not there.
    """
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(
            f'unknown device "{name}". Known: auto, cpu, cuda, cuda:N, mps.'
        ) from error
    present = {
        "cpu": True,
        "cuda": torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }
    if not present.get(device.type, False):
        raise UsageError(f'device "{name}" is not available here. Use --device cpu or auto.')
    return device


def fast_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 matrices in hardware."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        # Older releases of torch cannot tell.
        capabilities: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
        return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))
    return False


def pick_dtype(name: str, device: torch.device, checkpoint: torch.dtype | None) -> torch.dtype:
    """Resolve a dtype name.

    Args:
        name: `auto`, `float32`, `bfloat16` or `float16`.
        device: Where the model will run.
        checkpoint: The checkpoint's own dtype; None for dequantised weights, which have none: they
            take bfloat16 where that is fast and float32 elsewhere.

    Raises:
        UsageError: If the name is unknown.
    """
    if name != "auto":
        if name not in DTYPES:
            raise UsageError(f'unknown dtype "{name}". Known: auto, {", ".join(DTYPES)}.')
        return DTYPES[name]
    if checkpoint is not None:
        return checkpoint
    return torch.bfloat16 if fast_bfloat16(device) else torch.float32
