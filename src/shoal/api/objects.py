"""Model objects: joined with their tokenizers, and put back into the modes that they were in."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from shoal.models.load import load_dense
from shoal.pipeline.prepare import Model

F = TypeVar("F", bound=Callable[..., Any])


def keeps_mode(stage: F) -> F:
    """Put every part of model objects back into the mode that it was in."""

    @wraps(stage)
    def run(model: Model, *args: Any, **kwargs: Any) -> Any:
        given = [m for m in (model, *args, *kwargs.values()) if isinstance(m, PreTrainedModel)]
        modes = [(part, part.training) for m in given for part in m.modules()]
        try:
            return stage(model, *args, **kwargs)
        finally:
            for part, training in modes:
                part.training = training

    return cast(F, run)


def with_tokenizer(model: Model, tokenizer: PreTrainedTokenizerBase | None) -> Model:
    """Join a model object with its tokenizer."""
    if isinstance(model, PreTrainedModel):
        return load_dense(model, tokenizer=tokenizer)
    return model
