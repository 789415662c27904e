"""The pruned model in memory, made of the dense model's own tensors."""

import copy

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.initialization import no_init_weights

from shoal.core.errors import UnsupportedModelError
from shoal.core.layout import Layout
from shoal.core.mask import Mask
from shoal.models.dense import DenseModel
from shoal.surgery.config import prune_config
from shoal.surgery.fusing import checked_branches
from shoal.surgery.tensors import Renamer


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
    renamer = Renamer(dense.blocks.path, layout, branches)
    state = {}
    for name, tensor in dense.module.state_dict().items():
        new = renamer(name)
        if new is not None:
            state[new] = torch.zeros_like(tensor) if renamer.zeroes(new) else tensor
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


def _empty(cls: type[PreTrainedModel], config: PreTrainedConfig) -> PreTrainedModel:
    with torch.device("meta"), no_init_weights():
        return cls(config)


def _check_fit(model: PreTrainedModel, state: dict[str, torch.Tensor], mask: Mask) -> None:
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
