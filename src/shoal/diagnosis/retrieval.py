"""States as embeddings of texts: what a search by similarity would find with each model.

A text's embedding is the mean of the states that the head reads, or the last of them; similarity is
the cosine. It is plain, as where such embeddings are used: states of language models share a
direction, but their cosines still spread widely (from 0.4 to 1 for means, SmolLM2-135M on
WikiText-2). Two models need not have states of one size for their neighbours to be compared.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from transformers import PreTrainedTokenizerBase

from shoal.core.errors import NotFiniteError, UsageError
from shoal.core.means import known_mean
from shoal.data import (
    ChoiceItem,
    ChoiceSet,
    Corpus,
    EncodedText,
    PromptSet,
    Tokenisation,
    encode_corpus,
)
from shoal.data.corpus_tokens import first_tokens
from shoal.diagnosis.passages import Progress
from shoal.diagnosis.records import Retrieval
from shoal.diagnosis.sides import Side, together
from shoal.diagnosis.theorems import turn
from shoal.models.batch import TokenBatch
from shoal.objectives.text_batches import text_batches

Values = NDArray[np.float64]
Tokens = tuple[int, ...]

POOLINGS = ("mean", "last")

SHORTEST = 8
"""Least tokens of a text."""

PARAGRAPH = 16
"""Least tokens of a paragraph, which leaves out captions and the like."""

_HEADING = re.compile(r"=.*=")
_CUE = re.compile(r"\s*\bAnswer:\s*\Z")


def retrieve(
    dense: Side,
    other: Side,
    texts: Sequence[Tokens],
    *,
    neighbours: int = 10,
    batch_tokens: int,
    seed: int = 0,
    on_step: Progress | None = None,
) -> tuple[Retrieval, ...]:
    """Compare two models' embeddings of texts by what is similar to what.

    Args:
        dense: The dense model.
        other: The other.
        texts: Different texts of at least three tokens. A token that all start with, such as BOS,
            is put before their second halves too.
        neighbours: Nearest neighbours of a text that are looked at; at most half of the others,
            since all of them always stay.
        batch_tokens: Largest number of positions that run together.
        seed: Seed of the bootstrap.
        on_step: Hears of the progress, in the tokens that `retrieval_work` counts.

    Returns:
        Results for the mean of the states and for the last; none where states cannot be seen.

    Raises:
        UsageError: If there are fewer than 3 texts, a text is too short, or no neighbour is wanted.
        NotFiniteError: If states are not finite.
    """
    check_texts(texts, neighbours)
    middles, tails = _halves(texts)
    count = len(texts)
    # No state depends on what follows, so the first half of a text needs no run of its own.
    pieces = [
        *((i, len(text)) for i, text in enumerate(texts)),
        *enumerate(middles),
        *((count + i, len(tail)) for i, tail in enumerate(tails)),
    ]
    tables = _embed((dense, other), [*texts, *tails], pieces, batch_tokens, on_step)
    if tables is None:
        return ()
    kept = min(neighbours, (count - 1) // 2)
    return tuple(
        _compare(pooling, tables[0, pooling], tables[1, pooling], kept, seed)
        for pooling in POOLINGS
    )


def retrieval_work(texts: Sequence[Tokens]) -> int:
    """Tokens that `retrieve` runs."""
    return sum(map(len, [*texts, *_halves(texts)[1]]))


def _halves(texts: Sequence[Tokens]) -> tuple[list[int], list[Tokens]]:
    """Where each text is cut, and its second half behind the token that all texts start with."""
    start = texts[0][:1] if len({text[0] for text in texts}) == 1 else ()
    middles = [(len(text) + len(start)) // 2 for text in texts]
    return middles, [(*start, *t[m:]) for t, m in zip(texts, middles, strict=True)]


def check_texts(texts: Sequence[Tokens], neighbours: int) -> None:
    """Refuse texts that cannot be compared.

    Raises:
        UsageError: If they are fewer than 3 or too short, or no neighbours are asked for.
    """
    if len(texts) < 3:
        raise UsageError(
            f"retrieval compares at least 3 texts, and there are {len(texts)}. Give more text."
        )
    if neighbours < 1:
        raise UsageError(f"{neighbours} neighbours were asked for; give at least 1.")
    shortest = min(map(len, texts))
    if shortest < 3:
        raise UsageError(
            f"a text of {shortest} token(s) cannot be halved; retrieval needs at least 3 tokens."
        )


def _embed(
    sides: Sequence[Side],
    sequences: Sequence[Tokens],
    pieces: Sequence[tuple[int, int]],
    batch_tokens: int,
    on_step: Progress | None,
) -> dict[tuple[int, str], Values] | None:
    """Embeddings of the beginnings of sequences.

    Args:
        sides: The models.
        sequences: What is run.
        pieces: A sequence and the number of its tokens that are embedded.
        batch_tokens: Largest number of positions that run together.
        on_step: Hears of the progress.

    Returns:
        Side and pooling -> embeddings [pieces, d]; None where states cannot be seen.
    """
    found: dict[tuple[int, str, int], torch.Tensor] = {}
    encoded = [EncodedText(tokens, len(tokens) - 1) for tokens in sequences]
    for batch in text_batches(encoded, batch_tokens):
        tokens = everywhere(batch.tokens)
        lengths = [len(sequences[i]) for i in batch.examples]
        for side, rows in enumerate(together(sides, tokens)):
            if rows.states is None:
                return None
            states = dict(zip(batch.examples, rows.states.split(lengths), strict=True))
            for piece, (sequence, stop) in enumerate(pieces):
                if sequence in states:
                    here = states[sequence][:stop].double().cpu()
                    found[side, "mean", piece] = here.mean(0)
                    found[side, "last", piece] = here[-1]
        if on_step is not None:
            on_step(len(tokens.rows))
    tables: dict[tuple[int, str], Values] = {}
    for side, which in enumerate(sides):
        for pooling in POOLINGS:
            table = torch.stack([found[side, pooling, i] for i in range(len(pieces))])
            if not table.isfinite().all():
                raise NotFiniteError(
                    f"states of the {which.name} model are not finite, so texts cannot be "
                    "compared. Look for NaN or infinite weights, or try --dtype float32."
                )
            tables[side, pooling] = table.numpy()
    return tables


def everywhere(tokens: TokenBatch) -> TokenBatch:
    """A batch of texts in which every real position is a row, the last of each text too."""
    if tokens.owner is None:
        raise ValueError("the batch does not say which positions are padding")
    owner = tokens.owner.flatten()
    rows = (owner >= 0).nonzero()[:, 0]
    return replace(
        tokens,
        rows=rows,
        pick=torch.arange(len(rows)),
        targets=tokens.input_ids.flatten()[rows],
        segment=owner[rows],
    )


def _compare(pooling: str, dense: Values, other: Values, neighbours: int, seed: int) -> Retrieval:
    """Compare embeddings of whole texts, first halves and second halves, one below the other."""
    count = len(dense) // 3
    near, moved = (_to_others(_cosines(e[:count], e[:count])) for e in (dense, other))
    found = [_found(_cosines(e[count : 2 * count], e[2 * count :])) for e in (dense, other)]
    gap = None
    if dense.shape == other.shape:
        x, y = torch.from_numpy(dense[:count]), torch.from_numpy(other[:count])
        gap = known_mean(turn(x, y).gap.numpy(), seed)
    return Retrieval(
        pooling=pooling,
        texts=count,
        neighbours=neighbours,
        overlap=known_mean(_overlap(near, moved, neighbours), seed),
        rank_correlation=known_mean(_rank_correlation(near, moved), seed),
        found_dense=known_mean(found[0], seed),
        found_other=known_mean(found[1], seed),
        found_change=known_mean(found[1] - found[0], seed),
        hidden_gap=gap,
    )


def _cosines(left: Values, right: Values) -> Values:
    """Cosines of all pairs; a state of zeros is similar to nothing."""
    a, b = (e / np.maximum(np.linalg.norm(e, axis=1, keepdims=True), 1e-300) for e in (left, right))
    found: Values = a @ b.T
    return found


def _to_others(similar: Values) -> Values:
    """Similarities of each text to the others [n, n - 1], in the order of the texts."""
    count = len(similar)
    return similar[~np.eye(count, dtype=bool)].reshape(count, count - 1)


def _overlap(near: Values, moved: Values, neighbours: int) -> Values:
    """Share of each text's nearest neighbours that are so under both models [n]."""
    both = [np.argsort(-s, axis=1, kind="stable")[:, :neighbours] for s in (near, moved)]
    pairs = zip(*both, strict=True)
    return np.array([len(np.intersect1d(a, b)) / neighbours for a, b in pairs])


def _rank_correlation(near: Values, moved: Values) -> Values:
    """Spearman correlation of each row [n]; 0 where one of the two ranks nothing."""
    a, b = (rankdata(s, axis=1) for s in (near, moved))
    a, b = (r - r.mean(1, keepdims=True) for r in (a, b))
    size = np.sqrt((a * a).sum(1) * (b * b).sum(1))
    return np.divide((a * b).sum(1), size, out=np.zeros(len(a)), where=size > 0)


def _found(similar: Values) -> Values:
    """1 where a first half is nearest to its own second half and to no other as much [n]."""
    return (np.diag(similar) > _to_others(similar).max(1)).astype(float)


def retrieval_texts(
    data: Corpus | ChoiceSet | PromptSet,
    tokenizer: PreTrainedTokenizerBase,
    tokenisation: Tokenisation,
    *,
    limit: int = 128,
    length: int = 64,
) -> list[Tokens]:
    """Different texts to embed: the beginnings of a corpus's paragraphs, or questions.

    Args:
        data: Where they come from. Of several documents each is a text; one document is taken apart
            into its paragraphs, or into blocks where it has fewer than 3.
        tokenizer: The tokenizer.
        tokenisation: The policy for special tokens.
        limit: Most texts. They are drawn from everywhere in the data, always the same ones.
        length: Most tokens of a text, at least 8.

    Raises:
        UsageError: If the length is out of range, or fewer than 3 texts are long enough.
    """
    if length < SHORTEST:
        raise UsageError(f"the length of texts is {length}; it must be at least {SHORTEST} tokens.")
    prefix = tokenisation.prefix(tokenizer)
    single = isinstance(data, Corpus) and len(data.documents) == 1
    least = min(PARAGRAPH if single else SHORTEST, length)
    texts = list(dict.fromkeys(_texts(data)))
    drawn: dict[int, Tokens] = {}
    for place in np.random.default_rng(0).permutation(len(texts)).tolist():
        tokens = (*prefix, *first_tokens(texts[place], length - len(prefix), tokenizer))
        if len(tokens) >= least and tokens not in drawn.values():
            drawn[place] = tokens
        if len(drawn) == limit:
            break
    if isinstance(data, Corpus) and single and len(drawn) < 3:
        blocks = encode_corpus(data, tokenizer, tokenisation, length=length, num_blocks=limit)
        return list(dict.fromkeys(block.tokens for block in blocks))
    if isinstance(data, Corpus) and len(drawn) < 3:
        raise UsageError(
            f"{data.name} has {len(texts)} different texts, of which {len(drawn)} have at least "
            f"{least} tokens; retrieval compares at least 3. Give more or longer texts."
        )
    return [drawn[place] for place in sorted(drawn)]


def _texts(data: Corpus | ChoiceSet | PromptSet) -> Iterator[str]:
    if isinstance(data, Corpus) and len(data.documents) > 1:
        yield from map(str.strip, data.documents)
    elif isinstance(data, Corpus):
        lines = (line.strip() for line in data.documents[0].splitlines())
        yield from (line for line in lines if line and not _HEADING.fullmatch(line))
    elif isinstance(data, ChoiceSet):
        yield from (_CUE.sub("", _question(item)) for item in data.items)
    else:
        yield from (_CUE.sub("", item.prompt) for item in data.items)


def _question(item: ChoiceItem) -> str:
    """What the choices share; the right sentence where their contexts differ."""
    right = item.choices[item.gold]
    if any(choice.context != right.context for choice in item.choices):
        return right.context + right.continuation
    return right.context
