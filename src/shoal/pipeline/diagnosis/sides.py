"""The two models of a diagnosis, loaded and found to be comparable and not the same."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from shoal.core.errors import UsageError
from shoal.core.mask import Mask
from shoal.core.plan import Plan
from shoal.diagnosis.records import Subject
from shoal.diagnosis.sides import Side, checkpoint_side, dense_side, masked_side, together
from shoal.diagnosis.spaces import Rows
from shoal.models.batch import TokenBatch
from shoal.models.dense import DenseModel
from shoal.models.load import load_dense
from shoal.pipeline.diagnosis.request import Request
from shoal.pipeline.listener import Listener
from shoal.pipeline.plans import check_plan


@dataclass(frozen=True)
class Models:
    """What is compared.

    Attributes:
        dense: The dense model.
        mask: What is removed from it; None where another checkpoint is compared.
        against: The other checkpoint, or None.
    """

    dense: DenseModel
    mask: Mask | None
    against: DenseModel | None


def load_models(request: Request, listener: Listener, *, any_model: bool) -> Models:
    """Load both models.

    Raises:
        UsageError: If the plan was made for another model, or the vocabularies differ.
    """
    config = request.config
    options: dict[str, Any] = {"device": config.device, "dtype": config.dtype}
    listener.stage("Loading the model")
    dense = load_dense(request.model, config=request.hf_config, **options)
    if request.plan is not None:
        mask = check_plan(
            request.plan,
            dense.depth,
            dense.source.id,
            lambda: dense.fingerprint,
            any_model=any_model,
        )
        return Models(dense, mask, None)
    if request.against is None:
        raise ValueError("neither a plan nor a checkpoint")
    listener.stage(f"Loading {request.other_name}")
    against = load_dense(request.against, quantised=True, **options)
    check_vocabulary(dense, against)
    return Models(dense, None, against)


def check_vocabulary(dense: DenseModel, other: DenseModel) -> None:
    """Refuse models whose distributions are not over the same tokens.

    Raises:
        UsageError: If tokenizers or the number of logits differ.
    """
    if dense.tokenizer is not None and other.tokenizer is not None:
        mine, theirs = dense.tokenizer.get_vocab(), other.tokenizer.get_vocab()
        if mine != theirs:
            differing = sum(theirs.get(token) != i for token, i in mine.items())
            raise UsageError(
                f"{other.source.id} has another vocabulary than {dense.source.id}: {differing} of "
                f"{len(mine)} tokens differ. Distributions can be compared over the same tokens "
                "only."
            )
    sizes = [len(m.module.get_output_embeddings().weight) for m in (dense, other) if _has_head(m)]
    if len(set(sizes)) > 1:
        raise UsageError(
            f"{dense.source.id} has {sizes[0]} logits and {other.source.id} {sizes[1]}, so their "
            "distributions cannot be compared."
        )


def _has_head(model: DenseModel) -> bool:
    head = model.module.get_output_embeddings()
    return isinstance(getattr(head, "weight", None), torch.Tensor)


def make_sides(
    models: Models, batch: TokenBatch, everything: Iterable[TokenBatch]
) -> tuple[Side, Side]:
    """Choose how both run, and see that they are not the same model.

    Args:
        models: The models.
        batch: A real micro-batch.
        everything: All texts there are, of which as many are read as it takes to tell them apart.

    Raises:
        UsageError: If the other model gives the dense model's logits, though something was removed
            or another checkpoint was named.
    """
    masks = [models.mask] if models.mask is not None and len(models.mask) else []
    dense = dense_side(models.dense, batch, masks)
    if models.mask is not None:
        other = masked_side(dense, models.mask)
    elif models.against is not None:
        other = checkpoint_side(models.against, batch)
    else:
        raise ValueError("nothing to compare with")
    if models.mask is None or len(models.mask):
        _check_differs(dense, other, [batch, *everything])
    return dense, other


def _check_differs(dense: Side, other: Side, batches: Iterable[TokenBatch]) -> None:
    read = 0
    for batch in batches:
        mine, theirs = together((dense, other), batch)
        if mine.vocabulary != theirs.vocabulary:
            raise UsageError(
                f"the models have {mine.vocabulary} and {theirs.vocabulary} logits, so their "
                "distributions cannot be compared."
            )
        if not _equal(mine, theirs):
            return
        read += len(mine)
    raise UsageError(
        f"nothing was removed or changed: both models give the same logits on all {read} tokens of "
        "the prompts and texts, so there is nothing to diagnose. Check the plan or the checkpoint."
    )


def _equal(mine: Rows, theirs: Rows) -> bool:
    step = max(1, 2**22 // mine.vocabulary)
    for start in range(0, len(mine), step):
        stop = min(start + step, len(mine))
        z, y = mine.logits(start, stop), theirs.logits(start, stop)
        if not torch.equal(z, y.to(z.device)):
            return False
    return True


def subject(request: Request, models: Models, other: Side) -> Subject:
    """What the other model is, for the record."""
    plan = request.plan
    module: Any = other.model.module
    return Subject(
        name=request.other_name,
        kind="checkpoint" if plan is None else "plan",
        mask=models.mask,
        objective=plan.objective if isinstance(plan, Plan) else None,
        depth=other.model.depth,
        parameters=int(module.num_parameters()),
    )


def replacement(models: Models) -> DenseModel | None:
    """The other checkpoint where its sites can stand in the dense model's places."""
    against = models.against
    if against is None or against.depth != models.dense.depth:
        return None
    same = type(against.module) is type(models.dense.module)
    sizes = {m.module.get_input_embeddings().weight.shape for m in (models.dense, against)}
    return against if same and len(sizes) == 1 else None
