"""Greedy decoding by the model's own `generate`, whatever its own generation settings are."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    StoppingCriteriaList,
)

from shoal.models.dense import DenseModel
from shoal.models.discover import text_config
from shoal.objectives.stops import StopTexts


@dataclass(frozen=True)
class Decoding:
    """How a continuation is written.

    Attributes:
        new_tokens: Most tokens that are written.
        eos: Tokens that end a continuation.
        pad: The token that fills up rows; it is masked, or follows the end of a row.
        stops: Texts that end a continuation.
    """

    new_tokens: int
    eos: tuple[int, ...] = ()
    pad: int = 0
    stops: tuple[str, ...] = ()


@dataclass(frozen=True)
class Written:
    """What a model wrote.

    Attributes:
        tokens: For each row the tokens before the first EOS; what follows a stop text is undefined.
        finite: For each row whether the largest logit was finite at every step.
        logits: For each step the next-token logits [B, V], where they were asked for.
    """

    tokens: list[list[int]]
    finite: list[bool]
    logits: list[Tensor]


def write(
    model: PreTrainedModel,
    input_ids: Tensor,
    attention_mask: Tensor,
    decoding: Decoding,
    tokenizer: PreTrainedTokenizerBase,
    *,
    keep_logits: bool = False,
) -> Written:
    """Continue prompts greedily, with a KV cache.

    Args:
        model: The model.
        input_ids: Prompts [B, T], padded on the left.
        attention_mask: 1 where a token is real [B, T].
        decoding: How.
        tokenizer: Turns tokens into text, in which stop texts are looked for.
        keep_logits: Whether to return the logits of every step.
    """
    device = model.get_input_embeddings().weight.device
    watch = _Watch(keep_logits)
    width = input_ids.shape[1]
    criteria = StoppingCriteriaList()
    if decoding.stops:
        criteria.append(StopTexts(tokenizer, decoding.stops, width))
    settings = greedy_settings(decoding)
    generator: Any = model
    with neutral(generator, settings):
        continued = generator.generate(
            input_ids.to(device),
            attention_mask=attention_mask.to(device),
            generation_config=settings,
            logits_processor=LogitsProcessorList([watch]),
            stopping_criteria=criteria,
        )
    rows = [_before_end(row, decoding.eos) for row in continued[:, width:].tolist()]
    return Written(rows, watch.finite(), watch.logits)


def end_tokens(dense: DenseModel) -> tuple[int, ...]:
    """All tokens by which a model says that it is done, in ascending order."""
    owners = (dense.module.generation_config, dense.config, text_config(dense.config))
    found: set[int] = set()
    for owner in (*owners, dense.tokenizer):
        ends = getattr(owner, "eos_token_id", None)
        found |= set(ends if isinstance(ends, list | tuple) else [ends]) - {None}
    return tuple(sorted(found))


def greedy_settings(decoding: Decoding) -> Any:
    """Generation settings that decode greedily and do nothing else."""
    config: Any = GenerationConfig
    return config(
        max_new_tokens=decoding.new_tokens,
        do_sample=False,
        num_beams=1,
        use_cache=True,
        eos_token_id=list(decoding.eos) or None,
        pad_token_id=decoding.pad,
    )


@contextmanager
def neutral(model: Any, settings: Any) -> Iterator[None]:
    """Put other generation settings in place for a while.

    What is left open in the settings that `generate` is given it would take from the model's own:
    penalties, forced tokens, a cache of a kind.
    """
    own = model.generation_config
    model.generation_config = settings
    try:
        yield
    finally:
        model.generation_config = own


def _before_end(tokens: list[int], eos: Sequence[int]) -> list[int]:
    return tokens[: next((i for i, token in enumerate(tokens) if token in eos), None)]


class _Watch(LogitsProcessor):
    """Changes no logits; notes where they are not finite, which argmax would not tell."""

    def __init__(self, keep: bool) -> None:
        self.keep = keep
        self.logits: list[Tensor] = []
        self._finite: Tensor | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        # Of a NaN the maximum is NaN. Single tokens may be ruled out by minus infinity.
        finite = torch.isfinite(scores.amax(-1))
        self._finite = finite if self._finite is None else self._finite & finite
        if self.keep:
            self.logits.append(scores.clone())
        return scores

    def finite(self) -> list[bool]:
        return [] if self._finite is None else self._finite.tolist()
