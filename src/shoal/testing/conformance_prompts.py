"""Running a model on fixed tokens: its logits, and what it writes with and without a KV cache."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedModel

NEW_TOKENS = 8

WAYS = ("cached", "uncached")
"""The ways to write: with a KV cache, and without."""

# What dense models of the zoo raise where generation is not made for them.
_BEYOND = (AttributeError, IndexError, NotImplementedError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True)
class Prompts:
    """Tokens to run, longer than the attention windows of the zoo.

    Attributes:
        name: What they are called in outcomes.
        tokens: Ids that stand for nothing special [B, T].
        attended: 1 where there is a token and 0 where there is padding, on the left [B, T].
    """

    name: str
    tokens: torch.Tensor
    attended: torch.Tensor

    @classmethod
    def drawn(cls, name: str, *lengths: int) -> "Prompts":
        """Draw one row per length."""
        longest = max(lengths)
        generator = torch.Generator().manual_seed(len(lengths))
        tokens = torch.randint(8, 116, (len(lengths), longest), generator=generator)
        attended = torch.ones_like(tokens)
        for row, length in enumerate(lengths):
            attended[row, : longest - length] = 0
        return cls(name, tokens.where(attended == 1, 0), attended)


ONE = Prompts.drawn("batch 1", 24)
PADDED = Prompts.drawn("batch 2, left padding", 24, 17)


@dataclass(frozen=True)
class Greedy:
    """Greedy continuations.

    Attributes:
        written: Way, `cached` or `uncached`, -> prompts and continuations [B, T + new].
    """

    written: dict[str, torch.Tensor]

    @property
    def ways(self) -> tuple[str, ...]:
        """The ways that work."""
        return tuple(self.written)

    @property
    def agree(self) -> bool:
        """Whether both ways work and the cache makes no difference."""
        return len(self.written) == len(WAYS) and torch.equal(*self.written.values())

    def differs(self, found: "Greedy", *, strict: bool) -> str:
        """How another model's continuations differ from these; empty where they do not.

        Args:
            found: The other model's.
            strict: Whether each way has to give what it gives here. Without it, what either way
                gives here is as good as the other.
        """
        for way, tokens in found.written.items():
            allowed = [self.written[way]] if strict else list(self.written.values())
            if not any(torch.equal(tokens, reference) for reference in allowed):
                wanted = [row[-NEW_TOKENS:] for row in self.written[way].tolist()]
                return f"{way} tokens {[r[-NEW_TOKENS:] for r in tokens.tolist()]}, not {wanted}"
        return ""


@torch.inference_mode()
def logits_of(model: PreTrainedModel, prompts: Prompts) -> torch.Tensor:
    """The logits at every token that is not padding [N, V]."""
    output = model(input_ids=prompts.tokens, attention_mask=prompts.attended, use_cache=False)
    logits: torch.Tensor = output.logits[prompts.attended == 1]
    return logits


def greedy_of(
    model: PreTrainedModel,
    prompts: Prompts,
    *,
    ways: tuple[str, ...] = WAYS,
    tolerant: bool = False,
) -> Greedy:
    """Continue the prompts, whatever the model's own generation settings are.

    Args:
        model: The model.
        prompts: The prompts.
        ways: `cached`, `uncached` or both.
        tolerant: Leave out a way that raises, instead of raising.
    """
    written = {}
    for way in ways:
        try:
            written[way] = _generate(model, prompts, use_cache=way == "cached")
        except _BEYOND:
            if not tolerant:
                raise
    return Greedy(written)


@torch.inference_mode()
def _generate(model: PreTrainedModel, prompts: Prompts, *, use_cache: bool) -> torch.Tensor:
    generator: Any = model
    settings: Any = GenerationConfig
    own, generator.generation_config = generator.generation_config, settings(pad_token_id=0)
    try:
        written: torch.Tensor = generator.generate(
            prompts.tokens,
            attention_mask=prompts.attended,
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            use_cache=use_cache,
        )
    finally:
        generator.generation_config = own
    return written
