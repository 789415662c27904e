"""The pruned model in memory, made of the dense model's own tensors."""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.initialization import no_init_weights

from shoal.core.errors import UnsupportedModelError
from shoal.core.layout import Layout
from shoal.core.mask import Mask
from shoal.models.dense import DenseModel
from shoal.surgery.config import prune_config
from shoal.surgery.exceptions import Exceptions
from shoal.surgery.fusing import checked_branches
from shoal.surgery.tensors import Renamer
from shoal.surgery.transforms import Change, Transforms


def shallow_model(dense: DenseModel, target: Mask | Layout) -> PreTrainedModel:
    """Build the pruned model as an ordinary model of the same class.

    Its tensors are the dense model's, not copies, but for those that silence a branch: changing one
    in place changes the other. Nothing else of the dense model is touched.

    Args:
        dense: The dense model.
        target: What to remove, or what the pruned model's blocks are made of; a mask stands for its
            layout with what is left of neighbours fused.

    Returns:
        The model in eval mode, ready to run and to generate.

    Raises:
        UsageError: If the mask is for another depth, or removes everything.
        UnsupportedModelError: If the model type cannot express the mask.
    """
    layout = target if isinstance(target, Layout) else Layout.of(target)
    config = prune_config(dense.config, layout)
    branches = () if layout.whole else checked_branches(dense, layout)
    model = _empty(type(dense.module), config)
    twins, exceptions = tuple(dense.blocks.twins), Exceptions.of(dense.config)
    renamer = Renamer(dense.blocks.path, layout, branches, twins, exceptions)
    state = pruned_state(as_stored(dense.module), renamer, Transforms.of(dense.config, layout))
    _check_fit(model, state, layout.mask)
    model.load_state_dict(state, strict=True, assign=True)
    model.tie_weights()
    _fill_in(model, dense.module, renamer)
    if dense.module.can_generate():
        model.generation_config = copy.deepcopy(dense.module.generation_config)
    # What from_pretrained remembered of the file layout, for save_pretrained to go back to it.
    conversions = getattr(dense.module, "_weight_conversions", None)
    if conversions is not None:
        model._weight_conversions = conversions
    model.train(False)
    return model


def pruned_state(
    dense: Mapping[str, Tensor], renamer: Renamer, transforms: Transforms
) -> dict[str, Tensor]:
    """The tensors of the pruned model, made of those of the dense model.

    Args:
        dense: Name -> tensor of the dense model.
        renamer: Says which of them stay, and under which names.
        transforms: Says which of them change.
    """
    state = {}
    for name, tensor in dense.items():
        new = renamer(name)
        if new is None:
            continue
        if renamer.zeroes(new):
            state[new] = torch.zeros_like(tensor)
            continue
        change, beside = change_of(name, new, renamer, transforms)
        state[new] = tensor if change is None else change.make(tensor, *(dense[b] for b in beside))
    return state


def change_of(
    name: str, new: str, renamer: Renamer, transforms: Transforms
) -> tuple[Change | None, tuple[str, ...]]:
    """What has to change about a tensor, and the names of the dense tensors that it takes besides.

    Args:
        name: Its name in the dense model.
        new: Its name in the pruned model.
        renamer: Tells which block a name belongs to.
        transforms: The changes of the layout.
    """
    before, after = renamer.place(name), renamer.place(new)
    if before is None or after is None:
        return transforms.outside(new), ()
    path, old, rest = before
    change = transforms.inside(rest, old, after[1])
    beside = () if change is None else change.beside
    return change, tuple(f"{path}.{old}.{inner}" for inner in beside)


def as_stored(module: nn.Module) -> dict[str, Tensor]:
    """The tensors of a model as its checkpoint has them, which is how it has them itself.

    RWKV alone halves weights in place, every so many blocks, when it is first run. Those are given
    back as copies with their old values, for the pruned model to do it anew.
    """
    state = module.state_dict()
    for path, part in module.named_modules():
        every = getattr(getattr(part, "config", None), "rescale_every", 0)
        if not hasattr(part, "layers_are_rescaled") or not every:
            continue
        for i in range(len(part.blocks)):
            for inner in ("attention.output.weight", "feed_forward.value.weight"):
                name = f"{path}.blocks.{i}.{inner}".removeprefix(".")
                factor = 2 ** (i // every) if part.layers_are_rescaled else 1
                state[name] = state[name] * factor
    return state


def _empty(cls: type[PreTrainedModel], config: PreTrainedConfig) -> PreTrainedModel:
    with torch.device("meta"), no_init_weights():
        return cls(config)


def _check_fit(model: PreTrainedModel, state: dict[str, Tensor], mask: Mask) -> None:
    wanted = {name: tensor.shape for name, tensor in model.state_dict().items()}
    found = {name: tensor.shape for name, tensor in state.items()}
    wrong = sorted(n for n in wanted.keys() | found.keys() if wanted.get(n) != found.get(n))
    if wrong:
        name = wrong[0]
        raise UnsupportedModelError(
            f"{model.config.model_type} cannot be pruned by {mask}: the pruned config asks for "
            f"{name} of shape {_shape(wanted.get(name))}, the dense model gives "
            f"{_shape(found.get(name))} ({len(wrong)} such tensors). Choose other blocks."
        )


def _shape(shape: torch.Size | None) -> str:
    return "none" if shape is None else str(tuple(shape))


def _fill_in(model: nn.Module, dense: nn.Module, renamer: Renamer) -> None:
    """Share the tensors that no state dict holds, such as rotary tables."""
    for path, module in model.named_modules():
        origin = dense.get_submodule(renamer.origin(path + ".").removesuffix("."))
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.is_meta:
                module._buffers[name] = origin._buffers[name]
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor) and value.is_meta:
                object.__setattr__(module, name, getattr(origin, name))
