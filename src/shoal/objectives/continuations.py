"""Greedy continuations by a model's own `generate`, batched without padding.

Only prompts of the same length share a batch. Padding on the left is not exact for every
architecture (recurrent blocks read it, learned positions shift), and this way needs none.
"""

from collections.abc import Iterator, Sequence

import torch

from shoal.core.errors import UnsupportedModelError, UsageError
from shoal.models.dense import DenseModel
from shoal.models.discover import max_positions
from shoal.objectives.decoding import Decoding, end_tokens, greedy_settings, neutral


def check_room(dense: DenseModel, prompts: Sequence[Sequence[int]], new_tokens: int) -> None:
    """Refuse continuations that are longer than the model's positions.

    Raises:
        UsageError: If the longest prompt leaves too little room.
    """
    positions = max_positions(dense.config)
    longest = max((len(prompt) for prompt in prompts), default=0)
    if positions is None or longest + new_tokens <= positions:
        return
    room = positions - longest
    advice = f"Use --new-tokens {room} or less, or shorter prompts."
    if room < 1:
        advice = f"Use prompts of at most {positions - 1} tokens."
    raise UsageError(
        f"a prompt of {longest} tokens and {new_tokens} new ones do not fit {dense.source.id}, "
        f"which has {positions} positions. {advice}"
    )


def continue_greedily(
    dense: DenseModel, prompts: Sequence[Sequence[int]], new_tokens: int, batch_tokens: int
) -> list[list[int]]:
    """Let a model continue prompts, always with its likeliest token.

    Args:
        dense: The model.
        prompts: Token ids of each prompt, at least one.
        new_tokens: Most tokens of a continuation.
        batch_tokens: Most positions, prompt and continuation, that run together, unless one
            prompt has more.

    Returns:
        Token ids of each continuation, in order; one that ended has its EOS token last.

    Raises:
        UsageError: If a prompt and its continuation do not fit the model's positions.
        UnsupportedModelError: If the model cannot generate.
    """
    if not dense.module.can_generate():
        raise UnsupportedModelError(
            f"{dense.source.id} cannot generate text. Use an objective on given text."
        )
    check_room(dense, prompts, new_tokens)
    stops = end_tokens(dense)
    # Only what follows an EOS is padded, and that is cut off.
    settings = greedy_settings(Decoding(new_tokens, stops, stops[0] if stops else 0))
    found: dict[int, list[int]] = {}
    with neutral(dense.module, settings), torch.inference_mode():
        for group in _groups(prompts, new_tokens, batch_tokens):
            ids = torch.tensor([list(prompts[i]) for i in group], device=dense.device)
            whole = dense.module.generate(ids, attention_mask=torch.ones_like(ids))
            for i, tokens in zip(group, whole[:, ids.shape[1] :].tolist(), strict=True):
                found[i] = until_end(tokens, stops)
    return [found[i] for i in range(len(prompts))]


def _groups(
    prompts: Sequence[Sequence[int]], new_tokens: int, batch_tokens: int
) -> Iterator[list[int]]:
    """Indices of prompts of equal length, as many as may run together."""
    by_length: dict[int, list[int]] = {}
    for i, prompt in enumerate(prompts):
        by_length.setdefault(len(prompt), []).append(i)
    for length, places in by_length.items():
        count = max(1, batch_tokens // (length + new_tokens))
        for start in range(0, len(places), count):
            yield places[start : start + count]


def until_end(tokens: list[int], stops: Sequence[int]) -> list[int]:
    """The tokens up to the first that ends a text, it included."""
    end = next((i for i, token in enumerate(tokens) if token in stops), len(tokens))
    return tokens[: end + 1]
