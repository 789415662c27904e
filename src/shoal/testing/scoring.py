"""Next-token log-probabilities of tiny models: by a runner, and by the model's plain forward."""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from shoal.core.mask import Mask
from shoal.engine.runners import Runner
from shoal.models.batch import TokenBatch


def tiny_batch(length: int = 20, rows: int = 3, seed: int = 0) -> TokenBatch:
    """Random tokens for a tiny model, every next-token prediction of which is scored."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, 128, (rows, length), generator=generator)
    return TokenBatch.scored_everywhere(ids)


def plain_logprobs(model: PreTrainedModel, tokens: TokenBatch) -> Tensor:
    """Log-probability of each next token, in float64, by the model's own forward."""
    with torch.inference_mode():
        logits: Tensor = model(input_ids=tokens.input_ids, use_cache=False).logits
    table = logits.double().log_softmax(-1)
    return table[:, :-1].gather(2, tokens.input_ids[:, 1:, None]).reshape(-1)


def runner_logprobs(
    runner: Runner, tokens: TokenBatch, masks: Sequence[Mask], index: int | None = None
) -> dict[Mask, Tensor]:
    """Log-probability of each next token, in float64, for each mask that a runner runs."""
    with torch.inference_mode():
        return {
            mask: scorer.token_logprobs(tokens.pick, tokens.targets).double()
            for mask, scorer in runner.run(index, tokens, masks)
        }
