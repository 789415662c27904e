"""The sequences of a task: its prompts as the model gets them, or blocks of its text."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from shoal.config.geometry import GeometryConfig
from shoal.core import fingerprint
from shoal.core.errors import UsageError
from shoal.data import ChoiceSet, Corpus, Tokenisation
from shoal.geometry.stack import Batch
from shoal.models.batch import TokenBatch
from shoal.models.dense import DenseModel
from shoal.models.discover import max_positions
from shoal.objectives.build import Data
from shoal.objectives.prompting import prompts_of
from shoal.objectives.text import PASSAGES

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Sequences:
    """The sequences of one task.

    Attributes:
        every: All that were made, in the order of the data.
        count: How many of them are profiled.
        length: Most tokens of one.
    """

    every: list[Tokens]
    count: int
    length: int

    @property
    def profile(self) -> list[Tokens]:
        """The sequences that are profiled."""
        return self.every[: self.count]

    def with_states(self, wanted: int, skip: int) -> list[Tokens]:
        """The sequences that are profiled and as many more as give so many states.

        Args:
            wanted: States.
            skip: First positions of each sequence that do not count.
        """
        have = 0
        for i, tokens in enumerate(self.every):
            if have >= wanted and i >= self.count:
                return self.every[:i]
            have += len(tokens) - skip
        return self.every


def read_sequences(
    data: Data, dense: DenseModel, config: GeometryConfig, states: int, notes: list[str]
) -> Sequences:
    """Turn a task into sequences of tokens.

    Args:
        data: The task.
        dense: The model.
        config: How many are profiled, and how long they are.
        states: States that all of them should have together, for the surrogates.
        notes: What the user should know is added here.

    Raises:
        UsageError: If fewer than two sequences are long enough.
    """
    positions = max_positions(dense.config)
    length = min(config.max_tokens, positions or config.max_tokens)
    prefix = Tokenisation(bos=config.bos).prefix(dense.require_tokenizer())
    made = _made(data, dense, config, length, states)
    cut = sum(len(tokens) > length for tokens in made[: config.items])
    shown = [_last(tokens, length, prefix) for tokens in made]
    # Distances need two positions.
    usable = [tokens for tokens in shown if len(tokens) >= config.skip_first + 2]
    if len(usable) < 2:
        raise UsageError(
            f"{data.name} gives {len(usable)} sequences of {config.skip_first + 2} tokens or more "
            f"that fit {dense.source.id}, and profiles need at least two. Use more data, longer "
            "texts, or a lower --skip-first."
        )
    if len(usable) < config.items:
        notes.append(
            f"{data.name} gives {len(usable)} sequences, not the {config.items} that were asked for"
        )
    if cut:
        what = "questions" if isinstance(data, ChoiceSet) else "prompts"
        notes.append(
            f"{cut} {what} of {data.name} are longer than {length} tokens, of which the last are "
            "taken"
        )
    return Sequences(usable, min(config.items, len(usable)), length)


def _made(
    data: Data, dense: DenseModel, config: GeometryConfig, length: int, states: int
) -> list[Tokens]:
    """Sequences until there are enough, or no more."""
    packed = isinstance(data, Corpus) and data.name not in PASSAGES
    limit = config.items
    if packed:
        limit = max(limit, -(-states // max(1, length - config.skip_first)))
    while True:
        made = prompts_of(
            data,
            dense,
            Tokenisation(bos=config.bos),
            limit=limit if packed else min(limit, len(data)),
            length=length,
            new_tokens=1,
            chat=False,
            skip_long=True,
        )
        found = sum(max(0, min(len(t), length) - config.skip_first) for t in made)
        if packed or found >= states or limit >= len(data):
            return made
        limit = max(2 * limit, limit * states // max(1, found))


def _last(tokens: Tokens, length: int, prefix: Tokens) -> Tokens:
    """The last tokens after BOS: the end of a question is where the model answers."""
    if len(tokens) <= length:
        return tokens
    kept = len(prefix) if tokens[: len(prefix)] == prefix else 0
    return (*tokens[:kept], *tokens[len(tokens) - length + kept :])


def batches_of(sequences: Sequence[Tokens], batch_tokens: int, skip: int) -> tuple[Batch, ...]:
    """Right-padded batches, the longest sequences first.

    Args:
        sequences: The tokens of each.
        batch_tokens: Most positions that run together, unless one sequence has more.
        skip: First positions of each sequence that do not count.
    """
    order = sorted(range(len(sequences)), key=lambda i: (-len(sequences[i]), i))
    found, start = [], 0
    while start < len(order):
        longest = len(sequences[order[start]])
        group = order[start : start + max(1, batch_tokens // longest)]
        found.append(_padded([sequences[i] for i in group], skip))
        start += len(group)
    return tuple(found)


def _padded(sequences: Sequence[Tokens], skip: int) -> Batch:
    lengths = torch.tensor([len(tokens) for tokens in sequences])
    ids = torch.zeros(len(sequences), int(lengths.max()), dtype=torch.long)
    for row, tokens in zip(ids, sequences, strict=True):
        row[: len(tokens)] = torch.tensor(tokens)
    places = torch.arange(ids.shape[1])
    counted = (places >= skip) & (places < lengths[:, None])
    return Batch.of(TokenBatch.scored_everywhere(ids), counted)


def sequences_key(sequences: Sequence[Tokens], skip: int) -> str:
    """Fingerprint of sequences and of which states count."""
    return fingerprint.of_json([list(map(list, sequences)), skip])
