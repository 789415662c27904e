"""Finding what a model does after its last block, by watching its own forward.

The modules called after the last block are noted in order; whatever the forward does to the logits
besides (a scale, a soft cap) is fitted and checked. Where the result does not reproduce the model's
own logits, there is no head, and the caller runs the whole model instead.
"""

import logging
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from shoal.models.batch import TokenBatch
from shoal.models.dense import DenseModel
from shoal.models.discover import text_config
from shoal.models.head import Head
from shoal.models.hidden import hidden_of

log = logging.getLogger(__name__)


def tolerance(dtype: torch.dtype) -> float:
    """Largest relative difference that two orders of the same arithmetic may show."""
    return 1e-4 if dtype == torch.float32 else 4 * torch.finfo(dtype).eps


def find_head(dense: DenseModel, batch: TokenBatch) -> Head | None:
    """Find the head of a model and check it on a batch.

    Args:
        dense: The model.
        batch: A real batch, on the model's device.

    Returns:
        The head, or None where the model's logits cannot be reproduced from modules.
    """
    output = dense.module.get_output_embeddings()
    if not isinstance(output, nn.Linear):
        return None
    last = dense.blocks.layers[-1]
    seen: list[tuple[nn.Module, Tensor]] = []
    states: list[Tensor] = []

    def at_last(module: nn.Module, args: Any, result: Any) -> None:
        states[:] = [hidden_of(result)]
        seen.clear()

    def after(module: nn.Module, args: Any, result: Any) -> None:
        if states and isinstance(result, Tensor):
            seen.append((module, result))

    hooks = [last.register_forward_hook(at_last)]
    hooks += [m.register_forward_hook(after) for m in _outside_blocks(dense)]
    try:
        with torch.inference_mode():
            logits = dense.module(**batch.forward_arguments(dense.dtype)).logits
    finally:
        for hook in hooks:
            hook.remove()
    chain = tuple(module for module, _ in seen)
    if not states or output not in chain:
        return None
    chain = chain[: chain.index(output)]
    plain = Head(chain, output.weight, output.bias)
    expected = logits.reshape(-1, logits.shape[-1])[batch.rows].float()
    with torch.inference_mode():
        try:
            normed = plain.score(states[0], batch.rows).states
            raw = plain.logits(normed)
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
            log.info("the modules after the last block do not chain: %s", error)
            return None
    head = _fit(plain, raw, expected, dense.module)
    if head is None or not _close(head.finish(raw.clone()), expected, dense.dtype):
        return None
    return head


def _outside_blocks(dense: DenseModel) -> list[nn.Module]:
    """The outermost modules that neither hold the blocks nor lie inside them."""
    inside = dense.blocks.path
    found: list[tuple[str, nn.Module]] = []
    for name, module in dense.module.named_modules():
        holds = name == "" or inside == name or inside.startswith(name + ".")
        within = name.startswith(inside + ".")
        nested = any(name.startswith(outer + ".") for outer, _ in found)
        if not (holds or within or nested):
            found.append((name, module))
    return [module for _, module in found]


def _fit(plain: Head, raw: Tensor, expected: Tensor, module: PreTrainedModel) -> Head | None:
    """Find scale and cap that turn the output matrix's product into the model's logits."""
    if raw.shape != expected.shape:
        return None
    cap = getattr(text_config(module.config), "final_logit_softcapping", None)
    inner = expected
    if cap is not None:
        inner = cap * torch.atanh((expected / cap).clamp(-1 + 1e-6, 1 - 1e-6))
        # Only where the cap is not saturated can it be undone.
        keep = expected.abs() < 0.5 * cap
        raw, inner = raw[keep], inner[keep]
    norm = (raw * raw).sum()
    if norm == 0:
        return None
    scale = float((raw * inner).sum() / norm)
    scale = 1.0 if abs(scale - 1.0) < 1e-3 else float(f"{scale:.6g}")
    return Head(plain.chain, plain.weight, plain.bias, scale, cap)


def _close(found: Tensor, expected: Tensor, dtype: torch.dtype) -> bool:
    bound = tolerance(dtype) * max(1.0, float(expected.abs().max()))
    return bool((found - expected).abs().max() <= bound)
