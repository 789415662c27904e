"""What a diagnosis will take, from a few timings on its own texts and the counts of its work."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from shoal.diagnosis.freerun.writing import ROOM, Writing, written
from shoal.diagnosis.passages import Passage, compare_along
from shoal.diagnosis.sides import Side
from shoal.diagnosis.spaces import HEAD_ELEMENTS, TABLE_ELEMENTS
from shoal.pipeline.cost import Cost
from shoal.pipeline.diagnosis.probes import Probes

SITES_PER_BLOCK = 3
"""A block, its attention, its MLP."""

SWEEP = 0.6
"""What distributions at one more temperature cost, in whole comparisons."""


@dataclass(frozen=True)
class _Rates:
    """Seconds per unit of work.

    Attributes:
        read: Per position that both models read.
        compare: Per position at which they are compared.
        step: Per step of one text while a full batch is written.
    """

    read: float
    compare: float
    step: float


def cost_of(probes: Probes) -> Cost:
    """Estimate a diagnosis; parts that are kept already are counted all the same."""
    config, texts = probes.config, probes.texts
    rates = _measured(probes)
    wanted, seconds = config.probes, 0.0
    count, steps = len(texts.prompts), config.steps
    read = sum(map(len, texts.prompts)) + count * steps
    if texts.prompts:
        seconds += count * steps * rates.step
    if "teacher_forced" in wanted:
        compared = 1 + SWEEP * len(config.temperatures)
        seconds += read * rates.read + count * steps * rates.compare * compared
    if "free_run" in wanted:
        seeds = len(config.seeds)
        pairs, written_texts = 4 + seeds, 5 + 2 * seeds
        seconds += written_texts * count * steps * rates.step
        seconds += pairs * (1.5 * read * rates.read + count * steps * rates.compare)
    if "layerwise" in wanted:
        sites = SITES_PER_BLOCK * probes.dense.model.depth
        rows = min(count, config.layer_prompts) * config.layer_positions
        share = min(1.0, config.layer_final_prompts / max(1, count))
        # Of each site both variants, and its effect at the end, for which half the blocks run.
        seconds += sites * (2 * rows * rates.compare + 0.25 * share * read * rates.read)
    for data in texts.choices:
        # About as many positions as a prompt and its options have, both ways of asking.
        seconds += len(data) * (200 * rates.read + 2 * rates.compare)
    seconds += 3 * sum(map(len, texts.embedded)) * rates.read
    return Cost(seconds, _bytes(probes))


def _measured(probes: Probes) -> _Rates:
    sample = probes.texts.batch
    ids = sample.input_ids.tolist()
    passages = [Passage(tuple(row[:-1]), tuple(row[-1:])) for row in ids]
    longer = [Passage(tuple(row[: len(row) // 2]), tuple(row[len(row) // 2 :])) for row in ids]
    positions = sum(map(len, ids))
    rows = sum(len(p.written) for p in longer) - len(longer)

    def along(texts: list[Passage]) -> Callable[[], object]:
        return lambda: compare_along(
            probes.dense, probes.other, texts, probes.look, batch_tokens=probes.config.batch_tokens
        )

    along(passages)()
    one, many = _timed(along(passages)), _timed(along(longer))
    compare = max(0.0, many - one) / max(1, rows)
    return _Rates(one / positions, compare, _step(probes))


def _step(probes: Probes) -> float:
    """Seconds per step of one text."""
    prompts = probes.texts.prompts
    if not prompts:
        return 0.0
    longest = max(map(len, prompts)) + probes.config.steps
    count = max(1, min(len(prompts), ROOM * probes.config.batch_tokens // longest))
    some = sorted(prompts, key=len)[-count:] if probes.texts.padded else [prompts[0]]

    def write(side: Side, steps: int) -> Callable[[], object]:
        writing = Writing(steps, 1.0, None, ())
        return lambda: written(
            side,
            some,
            writing,
            batch_tokens=probes.config.batch_tokens,
            kept={},
            padded=probes.texts.padded,
        )

    write(probes.dense, 1)()
    short, long = _timed(write(probes.dense, 1)), _timed(write(probes.dense, 5))
    return max(0.0, long - short) / 4 / len(some) + short / probes.config.steps / len(some)


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _bytes(probes: Probes) -> float:
    """Weights of all models, and what runs need beside them."""
    dense = probes.dense.model
    weights = sum(p.numel() * p.element_size() for p in dense.module.parameters())
    total = float(weights)
    if probes.other.mask is None or probes.other.runner is not probes.dense.runner:
        total += sum(p.numel() * p.element_size() for p in probes.other.model.module.parameters())
    if "free_run" in probes.config.probes:
        total += weights / 2
    head = dense.module.get_output_embeddings()
    words = len(head.weight) if head is not None else 1
    tables = 2 * max(HEAD_ELEMENTS, words) * 4 + 12 * max(TABLE_ELEMENTS, words) * 8
    if probes.dense.runner.name == "whole":
        tables += 2 * probes.config.batch_tokens * words * 4
    width = getattr(dense.config.get_text_config(), "hidden_size", 1)
    states = probes.config.batch_tokens * width * 4 * (4 * dense.depth + 16)
    return total + tables + states
