"""Greedy search raced against greedy search in full: same set, and how many block passes fewer?

    python benchmarks/racing.py --objective nll --pool 128 --length 64 --sizes 32 64 96 --store F

The losses of a pool of examples are computed once and kept in the store, so the script may be
stopped and run again. Each draw takes a random part of the pool as its calibration set, in another
order, and both searches run on the recorded losses: what racing decides, and the block passes that
both need, are those of a run on that set alone. A pass is one block over one example; both sides
share prefixes and keep every state between rounds. Sizes above the pool draw with replacement: a
projection, since repeated examples look more alike than new ones.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from shoal.config.objectives import OBJECTIVES
from shoal.core.mask import Mask
from shoal.core.partition import parts_for, random_parts
from shoal.core.space import SearchSpace
from shoal.data import Tokenisation, load_any
from shoal.engine.evaluator import Evaluator
from shoal.engine.losses import ScoredLosses
from shoal.engine.racing import Racer
from shoal.engine.runners import Passes
from shoal.engine.selfcheck import choose_runner
from shoal.engine.store import Store
from shoal.engine.trie import State, path
from shoal.models.load import load_dense
from shoal.objectives.build import build_objective
from shoal.searches.base import Contest
from shoal.testing.racing import Examples, PartedObjective


class Recorded:
    """Losses of a draw, read from those of the pool; counts what computing them would take."""

    def __init__(self, pool: Evaluator, chosen: np.ndarray, batches: Sequence[Examples]) -> None:
        self.pool, self.chosen, self.batches = pool, chosen, batches
        self.passes = Passes()
        self._states: list[set[State]] = [{0} for _ in batches]

    def run(
        self, batches: Sequence[int], masks: Sequence[Mask]
    ) -> Iterator[tuple[int, Mask, list[float]]]:
        """The losses of every batch and every mask."""
        losses = {e.mask: np.asarray(e.losses) for e in self.pool.evaluate(masks)}
        for index in batches:
            examples = self.batches[index].examples
            before = len(self._states[index])
            self._states[index] |= {state for mask in masks for state in path(mask)}
            self.passes.blocks += (len(self._states[index]) - before) * len(examples)
            for mask in masks:
                yield index, mask, losses[mask][self.chosen[list(examples)]].tolist()


def greedy(
    pool: Evaluator, chosen: np.ndarray, options: argparse.Namespace, seed: int, race: bool
) -> tuple[Mask, int, str]:
    """Search on a draw; returns the mask, the passes, and what racing says."""
    count = len(chosen)
    parts = random_parts(count, parts_for(count) if race else 1, seed)
    batches = [Examples(part) for part in parts]
    weights = pool.objective.weights
    own = None if weights is None else [weights[i] for i in chosen]
    objective = PartedObjective(count, batches, own)
    source = Recorded(pool, chosen, batches)
    evaluator = Evaluator(objective, source, Store(None, {}, own))
    side = Racer(evaluator, options.error_rate, contests=options.remove) if race else evaluator
    depth = pool.evaluate([Mask.dense(options.depth)])[0].mask.depth
    space = SearchSpace.of_blocks(depth)
    mask = space.dense
    for _ in range(options.remove):
        found = side.evaluate(Contest(space.extensions(mask), winners=1))
        mask = min(found, key=lambda e: e.rank_key).mask
    return mask, source.passes.blocks, side.summary() if isinstance(side, Racer) else ""


def pool_evaluator(options: argparse.Namespace) -> Evaluator:
    """Losses of the whole pool, computed when asked for and kept."""
    dense = load_dense(options.model, dtype=options.dtype)
    config = OBJECTIVES[options.objective]()
    text = options.objective == "nll"
    data = load_any(
        config.default_task, data_dir=options.data_dir, limit=None if text else options.pool
    )
    objective = build_objective(
        config,
        data,
        dense,
        tokenisation=Tokenisation(),
        batch_tokens=2048,
        length=options.length,
        limit=options.pool,
    )
    widest = max(objective.batches, key=lambda b: b.tokens.input_ids.shape[1])
    share = int(options.cache_gb * 1e9) // len(objective.batches)
    runner = choose_runner(dense, widest.tokens, cache_bytes=share).runner
    context = {"objective": objective.expression, "data": objective.fingerprint}
    store = Store(options.store, context, objective.weights)
    options.depth = dense.depth
    return Evaluator(objective, ScoredLosses(dense, objective, runner), store)


def main() -> None:
    """Run all draws and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--objective", choices=["nll", "margin"], default="nll")
    parser.add_argument("--remove", type=int, default=7)
    parser.add_argument("--pool", type=int, default=128)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 64, 96])
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--error-rate", type=float, default=0.05)
    parser.add_argument("--data-dir", default="embedded")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--cache-gb", type=float, default=2.0)
    parser.add_argument("--store", type=Path)
    options = parser.parse_args()

    pool = pool_evaluator(options)
    count = pool.objective.num_examples
    print("| examples | draws | same set | passes in full | raced | factor, mean | least |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for size in options.sizes:
        same, full, raced = 0, [], []
        for draw in range(options.draws):
            rng = np.random.default_rng([size, draw])
            chosen = rng.choice(count, size, replace=size > count)
            exact_mask, exact_passes, _ = greedy(pool, chosen, options, draw, race=False)
            mask, passes, said = greedy(pool, chosen, options, draw, race=True)
            same += mask == exact_mask
            full.append(exact_passes)
            raced.append(passes)
            print(
                json.dumps({"size": size, "draw": draw, "mask": str(mask), "said": said}),
                flush=True,
            )
        factors = np.array(full) / np.array(raced)
        note = ", resampled" if size > count else ""
        print(
            f"| {size}{note} | {options.draws} | {same} | {np.mean(full):,.0f} | "
            f"{np.mean(raced):,.0f} | {factors.mean():.2f} | {factors.min():.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
