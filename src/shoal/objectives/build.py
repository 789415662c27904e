"""From an objective's config and loaded data to a prepared objective."""

from typing import Any

from shoal.config.objectives import ObjectiveConfig
from shoal.core import fingerprint
from shoal.core.errors import UsageError
from shoal.data.encode import EncodedText, Tokenisation, encode_choices, encode_corpus
from shoal.data.items import ChoiceSet, Corpus
from shoal.models.dense import DenseModel
from shoal.models.discover import max_positions
from shoal.objectives.base import Objective
from shoal.objectives.choice_batches import choice_batches
from shoal.objectives.packing import packing_agrees
from shoal.objectives.text_batches import text_batches

PASSAGES = frozenset({"lambada"})
"""Tasks whose documents are scored one by one rather than packed into blocks."""

DEFAULT_TEXTS = 32
"""Blocks of calibration text where no limit is given."""

DEFAULT_ITEMS = 128
"""Calibration items where no limit is given; the number of paper A."""


def build_objective(
    config: ObjectiveConfig,
    data: Corpus | ChoiceSet,
    dense: DenseModel,
    *,
    tokenisation: Tokenisation,
    batch_tokens: int,
    length: int = 512,
    limit: int | None = None,
    pack_choices: bool | None = None,
) -> Objective:
    """Tokenise the data and prepare an objective on them.

    Args:
        config: The objective and its options.
        data: Text or multiple-choice items, of the kind that the objective reads.
        dense: The model; its tokenizer is used.
        tokenisation: The policy for special tokens.
        batch_tokens: Positions per micro-batch.
        length: Tokens per block of text.
        limit: Number of blocks of text (32); items are limited when they are loaded.
        pack_choices: Run the choices of an item as one row; None asks the model's own forward.

    Raises:
        UsageError: If the data are of the wrong kind, too short, or too long for the model.
    """
    tokenizer = dense.require_tokenizer()
    positions = max_positions(dense.config)
    objective: Objective = config.load()()
    described: dict[str, Any] = {"tokenisation": tokenisation.describe(tokenizer)}
    if config.kind == "text":
        if not isinstance(data, Corpus):
            raise _wrong_kind(config, data.name, "multiple choice", "text")
        if positions is not None and length > positions:
            raise UsageError(
                f"blocks of {length} tokens do not fit {dense.source.id}, which has {positions} "
                f"positions. Use --length {positions} or less."
            )
        texts = encode_corpus(
            data,
            tokenizer,
            tokenisation,
            length=length,
            num_blocks=limit or DEFAULT_TEXTS,
            packing="documents" if data.name in PASSAGES else "packed",
        )
        described |= {"blocks": len(texts), "length": length}
        objective.batches = text_batches(texts, batch_tokens)
        objective.num_examples = len(texts)
        objective.weights = _weights(texts)
        content: Any = [[t.tokens, t.scored] for t in texts]
    else:
        if not isinstance(data, ChoiceSet):
            raise _wrong_kind(config, data.name, "text", "multiple choice")
        items = encode_choices(data, tokenizer, tokenisation, max_length=positions)
        if pack_choices is None:
            pack_choices = packing_agrees(dense, items, batch_tokens)
        described |= {"items": len(items), "packed_choices": pack_choices}
        objective.batches = choice_batches(items, batch_tokens, packed=pack_choices)
        objective.num_examples = len(items)
        content = [
            [[[c.tokens, c.scored, c.num_bytes, c.num_chars] for c in i.choices], i.gold]
            for i in items
        ]
    options = config.model_dump(exclude={"name"})
    for name, value in options.items():
        setattr(objective, name, value)
    objective.expression = f"{config.name}:{data.name}"
    objective.fingerprint = fingerprint.of_json([config.name, options, content])
    objective.data = {
        "name": data.name,
        "split": data.split,
        "origin": data.origin,
        "fingerprint": data.fingerprint,
        **described,
    }
    return objective


def _weights(texts: tuple[EncodedText, ...]) -> list[float] | None:
    lengths = [float(t.scored) for t in texts]
    return None if len(set(lengths)) == 1 else lengths


def _wrong_kind(config: ObjectiveConfig, name: str, has: str, needs: str) -> UsageError:
    return UsageError(
        f"the objective {config.name} reads {needs}, but {name} is {has}. "
        f"Its default task is {config.default_task}."
    )
