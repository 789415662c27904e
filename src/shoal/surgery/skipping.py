"""The pruned model in memory with removed sub-layers really skipped.

What pairs up is fused into ordinary blocks. Where an attention or an MLP is left alone, the block
that holds it has a stand-in for the other branch, which adds zeros and computes nothing. A stand-in
for an attention notes an empty entry in the KV cache for every token, so that all of the cache's
lengths stay what the model's own forward takes them to be.
"""

import logging
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from shoal.core.errors import UsageError
from shoal.core.layout import Layout
from shoal.core.mask import Mask
from shoal.models.branches import BlockBranches
from shoal.models.dense import DenseModel
from shoal.models.discover import find_blocks
from shoal.models.hidden import input_of
from shoal.models.silent import swaps_without
from shoal.models.sublayers import needed
from shoal.surgery.fusing import layout_for
from shoal.surgery.memory import shallow_model
from shoal.surgery.probe import greedy, logits_of, probe_tokens

log = logging.getLogger(__name__)

_NEW_TOKENS = 4

_FAILURES = (RuntimeError, ValueError, TypeError, IndexError, AttributeError, KeyError)
"""What models raise where something they need is not there."""


def pruned_model(dense: DenseModel, mask: Mask) -> PreTrainedModel:
    """Build the pruned model: as shallow as can be, with what remains to be left out skipped.

    Args:
        dense: The dense model. It is not changed; tensors are shared.
        mask: What to remove.

    Returns:
        The model in eval mode, ready to run and to generate. It can be saved where it consists of
        ordinary blocks; else `shoal.export` writes it.

    Raises:
        UsageError: If the mask is for another depth, or removes everything.
        UnsupportedModelError: If the model type cannot express the mask.
    """
    branches = needed(dense, mask)
    layout = layout_for(mask, "auto", branches)
    model = shallow_model(dense, layout)
    if not layout.zeroed:
        return model
    tokens = probe_tokens(dense, 2, _NEW_TOKENS)
    ways = _possible(model, tokens)
    expected = _outputs(model, tokens, ways)
    swaps = _install(model, layout, branches)
    try:
        found = _outputs(model, tokens, ways)
        agrees = all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        reason = "its outputs change"
    except _FAILURES as error:
        agrees, reason = False, str(error)
    if not agrees:
        log.warning(
            "removed sub-layers of this model run with a zeroed output, at their full cost, "
            "because it does not work without them (%s)",
            reason,
        )
        for owner, name, child, _ in swaps:
            owner._modules[name] = child
        return model
    _refuse_to_save(model, mask)
    return model


def _install(
    model: PreTrainedModel, layout: Layout, branches: Sequence[BlockBranches]
) -> list[tuple[nn.Module, str, nn.Module, nn.Module]]:
    """Put the stand-ins in place for good; returns what was swapped."""
    installed = []
    for block, slot in zip(find_blocks(model).layers, layout.slots, strict=True):
        branch = branches[slot.attn].branch(slot.zeroed) if slot.zeroed else None
        swaps = [] if branch is None else swaps_without(block, branch)
        # An attention beside a Mamba mixer has one place in the cache with it.
        caching = [stand_in for _, _, child, stand_in in swaps if hasattr(child, "layer_idx")]
        for stand_in in caching[:1]:
            stand_in.register_forward_pre_hook(_note_in_cache, with_kwargs=True)
        for owner, name, _, stand_in in swaps:
            owner._modules[name] = stand_in
        installed += swaps
    return installed


def _note_in_cache(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
    """Give the cache an empty entry for every token, in the place of keys and values."""
    for value in kwargs.values():
        if isinstance(value, Cache):
            known = value.layers[module.layer_idx : module.layer_idx + 1]
            if known and not hasattr(known[0], "update"):
                # A linear attention keeps no keys and values, and nobody asks for their number.
                continue
            hidden = input_of(args, kwargs)
            empty = hidden.new_zeros(hidden.shape[0], 1, hidden.shape[1], 1)
            value.update(empty, empty, module.layer_idx)


def _possible(model: PreTrainedModel, tokens: torch.Tensor) -> list[bool]:
    """With which settings of the cache the model can generate at all."""
    ways = []
    for cached in (True, False) if model.can_generate() else ():
        try:
            greedy(model, tokens, 1, use_cache=cached)
        except _FAILURES as error:
            log.info("the model cannot generate with use_cache=%s: %s", cached, error)
        else:
            ways.append(cached)
    return ways


def _outputs(
    model: PreTrainedModel, tokens: torch.Tensor, ways: Sequence[bool]
) -> list[torch.Tensor]:
    written = [greedy(model, tokens, _NEW_TOKENS, use_cache=cached) for cached in ways]
    return [logits_of(model, tokens), *written]


def _refuse_to_save(model: Any, mask: Mask) -> None:
    def save_pretrained(*args: Any, **kwargs: Any) -> NoReturn:
        raise UsageError(
            f"this model skips parts of blocks ({mask}), which no config can say, so a saved copy "
            "would not load. Write it with shoal.export, which zeroes them."
        )

    model.save_pretrained = save_pretrained
