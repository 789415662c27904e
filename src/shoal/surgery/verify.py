"""Checking that a written folder is the masked dense model, by loading it the ordinary way.

The reference is the dense model with its removed blocks muted: they run, and what they did to the
hidden state is discarded, so that caches and states between blocks are those of the real model.
"""

import logging
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from shoal.core.errors import VerificationError
from shoal.core.layout import Layout
from shoal.core.mask import Mask
from shoal.models.auto import auto_class
from shoal.models.dense import DenseModel
from shoal.models.discover import depth_of
from shoal.models.masked import muted
from shoal.models.offload import ON_DISK, quiet
from shoal.models.sublayers import needed
from shoal.surgery.probe import greedy, logits_of, probe_tokens

log = logging.getLogger(__name__)

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-4, torch.bfloat16: 0.05, torch.float16: 0.01}
"""Largest logit difference that passes, relative to the largest logit, by dtype.

The arithmetic is normally the same to the bit. The margins are a few rounding errors of the dtype,
carried through the depth of a model, for kernels that choose another order of summation.
"""


_WAYS = {"cached": True, "uncached": False}

_BEYOND = (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)
"""What models raise in ways of generating that are not made for them."""


def check_reload(
    folder: Path,
    dense: DenseModel,
    target: Mask | Layout,
    *,
    batch_sizes: Sequence[int] = (1, 2),
    new_tokens: int = 8,
    tolerance: float | None = None,
    offload: Path | None = None,
    spare: Collection[str] = (),
) -> dict[str, float | bool]:
    """Load a folder without shoal's help and compare it with the masked dense model.

    Args:
        folder: The checkpoint.
        dense: The dense model. It is left as it was.
        target: What the checkpoint leaves out, or what its blocks are made of.
        batch_sizes: Batch sizes to compare logits at.
        new_tokens: Greedy tokens to compare, with and without a KV cache.
        tolerance: Largest relative logit difference; None takes that of the dtype.
        offload: Leave the weights of the checkpoint on the disk; this folder takes those that its
            files hold in another layout than the model.
        spare: Tensors that the files may hold although the model has no place for them.

    Returns:
        What was measured: `max_logit_difference`, `relative_logit_difference`, `same_tokens_cached`
        and `same_tokens_uncached`.

    Raises:
        VerificationError: If keys are left over, logits differ, or generation differs.
    """
    layout = target if isinstance(target, Layout) else Layout.of(target)
    mask = layout.mask
    model = _reload(folder, dense, len(layout), offload, spare)
    allowed = TOLERANCE.get(dense.dtype, 1e-4) if tolerance is None else tolerance
    worst, relative = 0.0, 0.0
    for batch in batch_sizes:
        tokens = probe_tokens(dense, batch, new_tokens)
        with muted(dense.blocks, mask, needed(dense, mask)):
            expected = logits_of(dense.module, tokens)
        difference = (logits_of(model, tokens) - expected).abs().max().item()
        scaled = difference / max(expected.abs().max().item(), 1e-12)
        if not scaled <= allowed:
            raise VerificationError(
                f"the written model is not the masked dense model: at batch size {batch} its "
                f"logits differ by {difference:.3g} ({scaled:.3g} of the largest, allowed "
                f"{allowed:.3g}). The result is not kept. Please report this model type: "
                f"{dense.config.model_type}."
            )
        worst, relative = max(worst, difference), max(relative, scaled)
    checks: dict[str, float | bool] = {
        "max_logit_difference": worst,
        "relative_logit_difference": relative,
    }
    if new_tokens and dense.module.can_generate():
        checks |= _compare_generation(model, dense, mask, new_tokens)
    return checks


def _reload(
    folder: Path, dense: DenseModel, depth: int, offload: Path | None, spare: Collection[str]
) -> PreTrainedModel:
    auto = auto_class(dense.config)
    where: dict[str, Any] = {} if offload is None else ON_DISK | {"offload_folder": str(offload)}
    with quiet():
        model, report = auto.from_pretrained(
            folder,
            dtype=dense.dtype,
            attn_implementation=dense.config._attn_implementation,
            output_loading_info=True,
            **where,
        )
    report["unexpected_keys"] = set(report["unexpected_keys"]) - set(spare)
    wrong = {name: sorted(map(str, keys)) for name, keys in report.items() if keys}
    if wrong:
        listed = "; ".join(f"{name}: {', '.join(keys[:3])}" for name, keys in wrong.items())
        raise VerificationError(
            f"the written model does not load cleanly ({listed}). The result is not kept."
        )
    if depth_of(model.config) != depth:
        raise VerificationError(
            f"the written model has {depth_of(model.config)} blocks, not {depth}. "
            "The result is not kept."
        )
    loaded: PreTrainedModel = model if offload is not None else model.to(dense.device)
    return loaded.eval()


def _compare_generation(
    model: PreTrainedModel, dense: DenseModel, mask: Mask, new_tokens: int
) -> dict[str, float | bool]:
    tokens = probe_tokens(dense, 1, new_tokens)
    with muted(dense.blocks, mask, needed(dense, mask)):
        references = _references(dense, tokens, new_tokens)
    if len(references) == 2 and not torch.equal(*references.values()):
        log.info("the dense model itself generates other tokens with a KV cache than without")
    checks: dict[str, float | bool] = {}
    for name, expected in references.items():
        found = greedy(model, tokens, new_tokens, use_cache=_WAYS[name])
        if not any(torch.equal(found, reference) for reference in references.values()):
            raise VerificationError(
                f"the written model generates other tokens than the masked dense model, {name}: "
                f"{found[0, tokens.shape[1] :].tolist()} instead of "
                f"{expected[0, tokens.shape[1] :].tolist()}. The result is not kept. "
                f"Please report this model type: {dense.config.model_type}."
            )
        checks[f"same_tokens_{name}"] = True
    return checks


def _references(
    dense: DenseModel, tokens: torch.Tensor, new_tokens: int
) -> dict[str, torch.Tensor]:
    """What the masked dense model writes, in the ways in which it can write at all."""
    found = {}
    for name, cached in _WAYS.items():
        try:
            found[name] = greedy(dense.module, tokens, new_tokens, use_cache=cached)
        except _BEYOND as error:
            log.info("the dense model itself cannot generate %s: %s", name, error)
    return found
