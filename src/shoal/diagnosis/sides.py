"""The models that are compared: the dense one, and another that speaks the same vocabulary.

A model pruned in memory shares the dense model's weights, so both are run together and share the
blocks below the first that is missing. Any other checkpoint runs by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from shoal.core.errors import UsageError
from shoal.core.mask import Mask
from shoal.diagnosis.spaces import Rows
from shoal.engine.runners import Runner
from shoal.engine.selfcheck import choose_runner
from shoal.models.batch import TokenBatch
from shoal.models.dense import DenseModel
from shoal.models.head import Scorer
from shoal.models.source import Source
from shoal.surgery.skipping import pruned_model


@dataclass(frozen=True)
class Side:
    """One of the models.

    Attributes:
        name: What it is called in tables.
        model: The model as it generates.
        runner: Runs it over given tokens.
        mask: With what removed, for the runner.
        fingerprint: Tells its weights from others', in the keys of what is kept.
    """

    name: str
    model: DenseModel
    runner: Runner
    mask: Mask
    fingerprint: str

    def scorer(self, batch: TokenBatch) -> Scorer:
        """What scores the rows of a micro-batch, given on any device."""
        return scorers((self,), batch)[0]

    def rows(self, batch: TokenBatch) -> Rows:
        """States and logits of the rows of a micro-batch."""
        return Rows.of(self.scorer(batch))


def scorers(sides: Sequence[Side], batch: TokenBatch) -> list[Scorer]:
    """What scores the rows of one micro-batch under each model; what can be shared is run once."""
    found: dict[int, Scorer] = {}
    for runner in {id(side.runner): side.runner for side in sides}.values():
        here = [i for i, side in enumerate(sides) if side.runner is runner]
        masks = list(dict.fromkeys(sides[i].mask for i in here))
        local = batch.to(sides[here[0]].model.device)
        with torch.inference_mode():
            for mask, scorer in runner.run(None, local, masks):
                found |= {i: scorer for i in here if sides[i].mask == mask}
    return [found[i] for i in range(len(sides))]


def together(sides: Sequence[Side], batch: TokenBatch) -> list[Rows]:
    """States and logits of the rows of one micro-batch under each model."""
    return [Rows.of(scorer) for scorer in scorers(sides, batch)]


def dense_side(dense: DenseModel, batch: TokenBatch, masks: Sequence[Mask] = ()) -> Side:
    """The dense model, run by replay where that agrees with its own forward.

    Args:
        dense: The model.
        batch: A real micro-batch for that check.
        masks: Masks that will be run by the same runner.
    """
    choice = choose_runner(dense, batch.to(dense.device), masks=list(masks))
    mask = Mask.dense(dense.depth)
    return Side("dense", dense, choice.runner, mask, f"{dense.fingerprint}:{dense.dtype_name}")


def masked_side(dense: Side, mask: Mask, name: str = "pruned") -> Side:
    """The dense model without what a mask removes.

    Args:
        dense: The dense model.
        mask: What is removed.
        name: What to call it.

    Raises:
        UnsupportedModelError: If the model type cannot express the mask.
    """
    model = dense.model
    module = pruned_model(model, mask) if len(mask) else model.module
    pruned = DenseModel(module, model.tokenizer, changed(model.source, str(mask)))
    return Side(name, pruned, dense.runner, mask, f"{dense.fingerprint}{mask}")


def checkpoint_side(model: DenseModel, batch: TokenBatch, name: str = "other") -> Side:
    """Another checkpoint, run by itself.

    Args:
        model: The model.
        batch: A real micro-batch for the check of its runner.
        name: What to call it.

    Raises:
        UsageError: If the text holds tokens that the model does not know.
    """
    known = model.module.get_input_embeddings().weight.shape[0]
    largest = int(batch.input_ids.max())
    if largest >= known:
        raise UsageError(
            f"the text holds token {largest}, but {model.source.id} knows {known} tokens only. "
            "Compare models that share one vocabulary."
        )
    return replace(dense_side(model, batch), name=name)


def changed(source: Source, note: str) -> Source:
    """The source of a model that was changed in memory: it is no longer that of its files."""
    return Source("object", f"{source.id} {note}", None)
