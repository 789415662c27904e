"""A copy of the dense model in another precision: a model that is as good, and not the same."""

import copy

import torch

from shoal.diagnosis.sides import Side, checkpoint_side
from shoal.models.batch import TokenBatch
from shoal.models.dense import DenseModel
from shoal.models.source import Source


def rounded_side(dense: Side, batch: TokenBatch) -> Side:
    """The dense model's copy in bfloat16; in float32 where it is in a 16-bit type itself.

    It is the control of everything that grows by itself: a tiny change of all logits.

    Args:
        dense: The dense model.
        batch: A real micro-batch for the check of the runner.
    """
    model = dense.model
    dtype = torch.bfloat16 if model.dtype == torch.float32 else torch.float32
    name = f"{str(dtype).removeprefix('torch.')} copy"
    module = copy.deepcopy(model.module).to(dtype=dtype)
    source = Source("object", f"{model.source.id} ({name})", None)
    side = checkpoint_side(DenseModel(module, model.tokenizer, source), batch, name)
    return Side(side.name, side.model, side.runner, side.mask, f"{dense.fingerprint}:{name}")
