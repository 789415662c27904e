"""Pairs of texts summed up: their record with means over prompts.

Where there are several pairs, one for each seed, their numbers are averaged within a prompt first,
so that the intervals are over prompts alone.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from shoal.core.means import Values, curve, curves, known_mean, mean_by_prompt, means
from shoal.core.records import Mean
from shoal.diagnosis.freerun.pairs import Pair, flip_rate
from shoal.diagnosis.freerun.repetition import distinct_n, longest_repeat, looping
from shoal.diagnosis.freerun.writing import Tokens
from shoal.diagnosis.passages import Table
from shoal.diagnosis.records import FreeRun, TextMeasures

CURVES = (
    "hidden_gap",
    "logit_gap",
    "probability_gap",
    "kl",
    "total_variation",
    "flip",
    "subspace_kl",
)
"""Quantities that are shown step by step."""


def free_run(
    pairs: Sequence[Pair],
    *,
    name: str,
    control: bool,
    temperature: float,
    seeds: tuple[int, ...],
    stops: Sequence[int],
    seed: int = 0,
) -> FreeRun:
    """Sum up pairs of runs, one for each seed, or a single greedy one.

    Args:
        pairs: The texts after the same prompts, compared.
        name: What the run is called.
        control: Whether it is a control.
        temperature: Temperature of the distributions, and of samples.
        seeds: Seeds of the dense model's samples, one for each pair; empty for greedy.
        stops: Tokens that end a text.
        seed: Seed of the bootstrap.
    """
    shown = [quantity for quantity in CURVES if quantity in pairs[0].quantities]
    tables = {
        quantity: _pooled([pair.quantities[quantity] for pair in pairs]) for quantity in shown
    }
    mine = _measures([(pair.mine, pair.mine_nll) for pair in pairs], stops)
    theirs = _measures([(pair.theirs, pair.theirs_nll) for pair in pairs], stops)
    return FreeRun(
        name=name,
        control=control,
        decoding="sampled" if seeds else "greedy",
        temperature=temperature,
        seeds=seeds,
        diverged=curve(_pooled([pair.diverged() for pair in pairs]), seed),
        first_divergence=_mean([pair.first.astype(float) for pair in pairs], seed),
        flip_rate=_mean([_each(flip_rate, pair.mine, pair.theirs) for pair in pairs], seed),
        before=_part(pairs, seed, after=False),
        after=_part(pairs, seed, after=True),
        steps=curves(tables, seed),
        dense_text=TextMeasures(**_means(mine, seed)),
        other_text=TextMeasures(**_means(theirs, seed)),
        text_change=_means({name: theirs[name] - mine[name] for name in mine}, seed),
    )


def _part(pairs: Sequence[Pair], seed: int, *, after: bool) -> dict[str, Mean]:
    """Means on one side of the first different token: of a text first, then of a prompt."""
    columns = {
        name: np.stack(
            [mean_by_prompt(p.part(p.quantities[name], after=after)) for p in pairs], axis=1
        )
        for name in pairs[0].quantities
    }
    return means(columns, seed)


def _measures(
    texts: Sequence[tuple[Sequence[Tokens], Table]], stops: Sequence[int]
) -> dict[str, Values]:
    """What texts look like [prompts], from the texts and their likelihood for each seed."""
    measures: dict[str, Callable[[Tokens], float]] = {
        "length": len,
        "ended": lambda text: float(text[-1] in stops),
        "distinct_1": lambda text: distinct_n(text, 1),
        "distinct_2": lambda text: distinct_n(text, 2),
        "distinct_3": lambda text: distinct_n(text, 3),
        "longest_repeat": longest_repeat,
        "looping": looping,
    }
    found = {
        name: _over_seeds([_each(measure, some) for some, _ in texts])
        for name, measure in measures.items()
    }
    return found | {"surprise": _over_seeds([mean_by_prompt(nll) for _, nll in texts])}


def _means(values: Mapping[str, Values], seed: int) -> dict[str, Mean]:
    """Means over prompts by name."""
    return {name: known_mean(some, seed) for name, some in values.items()}


def _mean(values: Sequence[Values], seed: int) -> Mean:
    """Mean of a number per text [seeds][prompts]."""
    return known_mean(_over_seeds(values), seed)


def _over_seeds(values: Sequence[Values]) -> Values:
    """Mean over seeds of a number per text [seeds][prompts] -> [prompts]."""
    return mean_by_prompt(np.stack(values, axis=1))


def _each(measure: Callable[..., float], *texts: Sequence[Tokens]) -> Values:
    return np.array([measure(*some) for some in zip(*texts, strict=True)], dtype=np.float64)


def _pooled(tables: Sequence[Table]) -> Table:
    """Mean over seeds of tables [prompts, steps], where there is a value."""
    stacked = np.stack(tables, axis=-1)
    return mean_by_prompt(stacked.reshape(-1, len(tables))).reshape(tables[0].shape)
