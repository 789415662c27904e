"""Interventions on the blocks of a model, as hooks that stay while a context is open.

    removed   F(h) -> h
    scaled    h' = h + alpha Attn(h),  h'' = h' + alpha Mlp(h')     form "updates"
              h'' = h + alpha (F(h) - h)                            form "block"
    mapped    F(h) -> M(F(h))

They compose with one another and with the model's own forward, which must run without a KV cache.
Scaling is part of the block, whatever the order; a map and a removal at one block act in the order
in which their contexts were entered, so that what is removed later also loses its map.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from shoal.core.errors import UnsupportedModelError, UsageError
from shoal.core.mask import Mask
from shoal.geometry.maps import AffineMap
from shoal.geometry.stack import Stack
from shoal.models.hidden import handed_on, hidden_of, input_of, with_hidden
from shoal.models.masked import muted
from shoal.models.probing import silence

ScalingForm = Literal["updates", "block"]

Maps = AffineMap | Sequence[tuple[slice, AffineMap]]
"""One map for all positions, or one for each of several classes of positions."""


def removed(stack: Stack, mask: Mask) -> AbstractContextManager[None]:
    """Let what a mask removes do nothing.

    Args:
        stack: The model.
        mask: The sites.

    Raises:
        UsageError: If the mask is for another depth.
        UnsupportedModelError: If a removed part is no branch of its block.
    """
    if mask.depth != stack.depth:
        raise UsageError(
            f"the mask {mask} is for {mask.depth} blocks, but this model has {stack.depth}."
        )
    return muted(stack.blocks, mask, stack.branches)


def scaling_form(stack: Stack) -> ScalingForm:
    """What `scaled` scales by default: updates where those of all blocks can be told."""
    return "block" if isinstance(_updates(stack), str) else "updates"


@contextmanager
def scaled(
    stack: Stack, alphas: Mapping[int, float], form: ScalingForm | None = None
) -> Iterator[None]:
    """Scale what some blocks add. 1 leaves the dense model and 0 removes, both to the last bit.

    Args:
        stack: The model.
        alphas: Block -> its scale.
        form: What is scaled; by default as `scaling_form` says.

    Raises:
        UsageError: If there is no such block, a scale is not finite, or the form is unknown.
        UnsupportedModelError: If the form is `updates` and these cannot be told.
    """
    _check_layers(stack, alphas)
    for layer, alpha in alphas.items():
        if not math.isfinite(alpha):
            raise UsageError(f"block {layer} is scaled by {alpha}; a scale must be finite.")
    form = form or scaling_form(stack)
    if form not in ("updates", "block"):
        raise UsageError(f'unknown form of scaling "{form}". Known: updates, block.')
    updates = _updates(stack) if form == "updates" else {}
    if isinstance(updates, str):
        raise UnsupportedModelError(f"updates cannot be scaled: {updates}. Use the form block.")
    with ExitStack() as hooks:
        for layer, alpha in alphas.items():
            for module, hook in _scalings(stack, layer, alpha, updates.get(layer)):
                # Before any map, so that the map acts on what the scaled block gives.
                handle = module.register_forward_hook(hook, with_kwargs=True, prepend=True)
                hooks.callback(handle.remove)
        yield


@contextmanager
def mapped(stack: Stack, maps: Mapping[int, Maps]) -> Iterator[None]:
    """Apply affine maps to the states that leave some blocks.

    Args:
        stack: The model.
        maps: Block -> its map, or a sequence of (positions, map) with a slice of the positions of
            a sequence each; other positions stay as they are.

    Raises:
        UsageError: If there is no such block, or, once the model runs, the maps are of another
            width or positions belong to two of them.
        UnsupportedModelError: If blocks have a part in each of several stacks; or, once the model
            runs, if its states are not [B, T, d] and maps are given by position.
    """
    _check_layers(stack, maps)
    if maps and stack.blocks.twins:
        raise UnsupportedModelError(
            f"each block has a part in {', '.join(stack.blocks.stacks)}, so no single state leaves "
            "it that could be mapped."
        )
    with ExitStack() as hooks:
        for layer, given in maps.items():
            hook = _Mapping(given)
            hooks.callback(stack.blocks.layers[layer].register_forward_hook(hook).remove)
        yield


def _check_layers(stack: Stack, layers: Mapping[int, Any]) -> None:
    for layer in layers:
        if not 0 <= layer < stack.depth:
            raise UsageError(
                f"there is no block {layer}: this model has the blocks 0 to {stack.depth - 1}."
            )


def _updates(stack: Stack) -> dict[int, tuple[nn.Module, ...]] | str:
    """The modules whose outputs each block adds; or why they cannot be told."""
    if not stack.branches:
        return "what the blocks are made of is not known"
    found: dict[int, tuple[nn.Module, ...]] = {}
    for i, (block, parts) in enumerate(zip(stack.blocks.layers, stack.branches, strict=True)):
        told = [branch for branch in (parts.attn, parts.mlp) if branch is not None]
        if not told:
            return parts.why_not or f"block {i} has no branch"
        found[i] = tuple(block.get_submodule(c.path) for b in told for c in b.updates)
    every = [id(module) for modules in found.values() for module in modules]
    if len(set(every)) != len(every):
        return "blocks share a module whose output they add"
    return found


def _scalings(
    stack: Stack, layer: int, alpha: float, updates: tuple[nn.Module, ...] | None
) -> list[tuple[nn.Module, Callable[..., Any]]]:
    """The hooks that scale one block."""
    parts = [layers[layer] for layers in stack.blocks.stacks.values()]
    if alpha == 1:
        return []
    if alpha == 0:
        # What was computed is dropped, because zero times infinity is no number.
        quiet: list[tuple[nn.Module, Callable[..., Any]]] = []
        if updates is not None:
            quiet = [(module, _silenced) for module in updates]
        return quiet + [(part, handed_on) for part in parts]
    if updates is None:
        return [(part, _scaled_block(alpha)) for part in parts]
    return [(module, _scaled_update(alpha)) for module in updates]


def _silenced(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
    return silence(module, args, output)


def _scaled_update(alpha: float) -> Callable[..., Any]:
    def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        update = hidden_of(output)
        return with_hidden(output, (update.to(_wide(update)) * alpha).to(update.dtype))

    return hook


def _scaled_block(alpha: float) -> Callable[..., Any]:
    def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        out = hidden_of(output)
        before = input_of(args, kwargs).to(_wide(out))
        return with_hidden(output, torch.lerp(before, out.to(_wide(out)), alpha).to(out.dtype))

    return hook


def _wide(hidden: Tensor) -> torch.dtype:
    return torch.promote_types(hidden.dtype, torch.float32)


class _Mapping:
    """The hook that maps what leaves one block."""

    def __init__(self, maps: Maps) -> None:
        self._maps = maps
        self._local: dict[tuple[int, torch.device], AffineMap] = {}

    def __call__(self, module: nn.Module, args: Any, output: Any) -> Any:
        hidden = hidden_of(output)
        if isinstance(self._maps, AffineMap):
            return with_hidden(output, self._at(self._maps, hidden)(hidden))
        if hidden.dim() != 3:
            raise UnsupportedModelError(
                f"maps by position need hidden states [B, T, d], got {list(hidden.shape)}."
            )
        places = range(hidden.shape[1])
        if len({i for s, _ in self._maps for i in places[s]}) < sum(
            len(places[s]) for s, _ in self._maps
        ):
            raise UsageError("two maps after one block act on the same positions.")
        new = hidden.clone()
        for positions, one in self._maps:
            new[:, positions] = self._at(one, hidden)(hidden[:, positions])
        return with_hidden(output, new)

    def _at(self, one: AffineMap, hidden: Tensor) -> AffineMap:
        """A map where the states are."""
        if one.width != hidden.shape[-1]:
            raise UsageError(
                f"a map of width {one.width} is placed after a block of width {hidden.shape[-1]}."
            )
        key = id(one), hidden.device
        if key not in self._local:
            # There is no float64 on this kind of device.
            single = hidden.device.type == "mps"
            self._local[key] = one.to(hidden.device, torch.float32 if single else None)
        return self._local[key]
