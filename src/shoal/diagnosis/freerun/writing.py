"""What models write by themselves, greedily or by samples that two models share the chance of.

Samples are drawn by the Gumbel-max rule: the token is the argmax of z / T + G, where every G is
-log of an exponential variable, which samples softmax(z / T) exactly. Here the noise G depends on
the seed, the prompt and the step alone, neither on the model nor on what else is in the batch. So
two models with one seed write one text as long as their distributions are equal, and where these
lie a total variation D apart the chance of different tokens is at least D, as under any coupling,
and at most 2 D / (1 + D).
"""

import json
import logging
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList

from shoal.core import fingerprint
from shoal.core.errors import NotFiniteError, UnsupportedModelError, UsageError
from shoal.diagnosis.sides import Side
from shoal.objectives.continuations import check_room, until_end
from shoal.objectives.decoding import Decoding, greedy_settings, neutral
from shoal.objectives.prompt_batches import PromptBatch, prompt_batches

Tokens = tuple[int, ...]

log = logging.getLogger(__name__)

_FAILURES = (AttributeError, IndexError, KeyError, NotImplementedError, TypeError, ValueError)
"""What transformers raises where it cannot generate with a model, though it says that it can."""

ROOM = 4
"""How many times as many positions run together as when texts are read: a step runs one each."""


@dataclass(frozen=True)
class Writing:
    """How a text is written.

    Attributes:
        new_tokens: Most tokens of a text.
        temperature: Temperature of samples; greedy texts have none.
        seed: Seed of the noise; None writes greedily.
        stops: Tokens that end a text. They belong to the pair of models, not to one of them.
    """

    new_tokens: int
    temperature: float = 1.0
    seed: int | None = None
    stops: Tokens = ()

    def __post_init__(self) -> None:
        """Refuse what cannot be written.

        Raises:
            UsageError: If a number is out of range.
        """
        if self.new_tokens < 1:
            raise UsageError(f"{self.new_tokens} new tokens make no text. Ask for at least 1.")
        if not 0 < self.temperature < np.inf:
            raise UsageError(
                f"nothing can be sampled at temperature {self.temperature}. Use a number above 0."
            )
        if self.seed is not None and self.seed < 0:
            raise UsageError(f"{self.seed} is no seed. Use a whole number from 0 up.")


def written(
    side: Side,
    prompts: Sequence[Tokens],
    writing: Writing,
    *,
    batch_tokens: int,
    kept: MutableMapping[str, bytes],
    padded: bool,
    on_step: Callable[[int], None] | None = None,
) -> list[Tokens]:
    """Let a model continue prompts, with a KV cache.

    Args:
        side: The model.
        prompts: Token ids of each prompt, at least one.
        writing: How.
        batch_tokens: Most positions that run together when texts are read, of which `ROOM` times
            as many are held here.
        kept: Texts that are known already, and where new ones are put after each micro-batch. A
            text is found again whatever else is asked for, a sampled one in its place among the
            prompts, since the noise depends on that.
        padded: Whether prompts of different lengths may share a batch.
        on_step: Called after each micro-batch with the most tokens that could be written.

    Returns:
        Token ids of each text, in order: at least one; one that ended has its EOS token last.

    Raises:
        UsageError: If a prompt and its text do not fit the model's positions.
        UnsupportedModelError: If the model cannot generate.
        NotFiniteError: If its logits are not finite.
    """
    keys = [_key(side, i, prompt, writing) for i, prompt in enumerate(prompts)]
    missing = [i for i, key in enumerate(keys) if key not in kept]
    if on_step is not None and len(missing) < len(prompts):
        on_step((len(prompts) - len(missing)) * writing.new_tokens)
    if missing:
        _check(side, [prompts[i] for i in missing], writing)
    # Only what is masked or follows the end of a text is padded.
    pad = writing.stops[0] if writing.stops else 0
    some = [prompts[i] for i in missing]
    room = ROOM * batch_tokens
    for batch in prompt_batches(some, room, writing.new_tokens, pad, padded=padded):
        here = replace(batch, examples=tuple(missing[i] for i in batch.examples))
        for i, tokens in zip(here.examples, _write(side, here, writing, pad), strict=True):
            kept[keys[i]] = json.dumps(tokens).encode()
        if on_step is not None:
            on_step(len(here.examples) * writing.new_tokens)
    return [tuple(json.loads(kept[key])) for key in keys]


def gumbel(seed: int, prompt: int, step: int, size: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Standard Gumbel noise for one step of one prompt [size]."""
    rng = np.random.Generator(np.random.SFC64(np.random.SeedSequence([seed, prompt, step])))
    # Single precision would leave few values near zero, where the maxima come from.
    drawn = np.maximum(rng.standard_exponential(size), np.finfo(np.float64).tiny)
    return (-np.log(drawn, out=drawn)).astype(np.float32)


def _check(side: Side, prompts: Sequence[Tokens], writing: Writing) -> None:
    if not side.model.module.can_generate():
        raise UnsupportedModelError(
            f"{side.model.source.id} cannot generate text. Probes that need no text of its own "
            "still run: --probes choice,retrieval."
        )
    check_room(side.model, prompts, writing.new_tokens)


def _key(side: Side, index: int, prompt: Tokens, writing: Writing) -> str:
    """What a text depends on."""
    chance = [] if writing.seed is None else [writing.seed, index, writing.temperature]
    model = [side.fingerprint, side.model.dtype_name]
    how = [writing.new_tokens, sorted(writing.stops), chance]
    return fingerprint.of_json(["free text", *model, prompt, *how])


def _write(side: Side, batch: PromptBatch, writing: Writing, pad: int) -> list[list[int]]:
    model: Any = side.model.module
    width = batch.input_ids.shape[1]
    settings = greedy_settings(Decoding(writing.new_tokens, writing.stops, pad))
    chance = _Chance(batch.examples, width, writing)

    def generate() -> Any:
        chance.finite.clear()
        with neutral(model, settings), torch.inference_mode():
            return model.generate(
                batch.input_ids.to(side.model.device),
                attention_mask=batch.attention_mask.to(side.model.device),
                generation_config=settings,
                logits_processor=LogitsProcessorList([chance]),
            )

    try:
        whole = generate()
    except _FAILURES as error:
        log.warning(
            "%s fails while it generates with a KV cache, so it runs without one (%s: %s)",
            side.model.source.id,
            type(error).__name__,
            error,
        )
        settings.use_cache = False
        whole = _without_cache(side, generate)
    texts = [until_end(tokens, writing.stops) for tokens in whole[:, width:].tolist()]
    finite = torch.stack(chance.finite, 1).cpu()
    for known, text in zip(finite, texts, strict=True):
        if not known[: len(text)].all():
            raise NotFiniteError(
                f"logits of the {side.name} model ({side.model.source.id}) are not finite while it "
                "writes, so there is nothing to compare. Look for NaN or infinite weights, or try "
                "--dtype float32."
            )
    return texts


def _without_cache(side: Side, generate: Callable[[], Any]) -> Any:
    try:
        return generate()
    except _FAILURES as error:
        raise UnsupportedModelError(
            f"{side.model.source.id} fails while it generates ({type(error).__name__}: {error}). "
            "Probes that need no text of its own still run: --probes choice,retrieval."
        ) from error


class _Chance(LogitsProcessor):
    """Adds the noise, and notes where logits are not finite, which argmax would not tell.

    Args:
        prompts: Index of the prompt in each row.
        width: Tokens of the prompts, padding included.
        writing: How is written.
    """

    def __init__(self, prompts: Sequence[int], width: int, writing: Writing) -> None:
        self.finite: list[Tensor] = []
        self._prompts, self._width, self._writing = prompts, width, writing

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        # Of a NaN the maximum is NaN. Single tokens may be ruled out by minus infinity.
        self.finite.append(torch.isfinite(scores.amax(-1)))
        seed = self._writing.seed
        if seed is None:
            return scores
        step, words = input_ids.shape[1] - self._width, scores.shape[1]
        noise = np.stack([gumbel(seed, prompt, step, words) for prompt in self._prompts])
        return scores / self._writing.temperature + torch.from_numpy(noise).to(scores.device)
