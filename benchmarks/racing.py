"""Greedy search raced against greedy search in full: same set, and at what cost?

    python benchmarks/racing.py --objective nll --examples 64 --length 64 --data-dir DATA
    python benchmarks/racing.py --objective margin --examples 64 --data-dir DATA

Each draw takes other calibration examples and another random order of the parts. Both sides keep
hidden states between rounds within the same memory. Micro-batches differ in size, so work is
counted in token passes: one token through one block.
"""

import argparse
import json
import time
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from shoal.config.objectives import OBJECTIVES
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.data import Tokenisation, load_any
from shoal.data.items import ChoiceSet, Corpus
from shoal.engine.evaluator import Evaluator
from shoal.engine.losses import ScoredLosses
from shoal.engine.racing import Racer, parts_for
from shoal.engine.selfcheck import choose_runner
from shoal.engine.store import Store
from shoal.models.dense import DenseModel
from shoal.models.load import load_dense
from shoal.objectives.build import build_objective
from shoal.searches.base import Contest


@dataclass(frozen=True)
class Run:
    """One greedy search."""

    mask: Mask
    token_passes: int
    head_tokens: int
    seconds: float
    summary: str = ""


def drawn(data: ChoiceSet | Corpus, examples: int, seed: int) -> ChoiceSet | Corpus:
    """Random items, or the text from a random place."""
    rng = np.random.default_rng(seed)
    if isinstance(data, Corpus):
        start = int(rng.integers(0, max(1, len(data.documents) // 2)))
        return replace(data, documents=data.documents[start:])
    chosen = rng.choice(len(data.items), min(examples, len(data.items)), replace=False)
    return replace(data, items=tuple(data.items[i] for i in chosen))


def greedy(
    dense: DenseModel, data: ChoiceSet | Corpus, options: argparse.Namespace, seed: int, race: bool
) -> Run:
    """Search on freshly prepared data, with nothing stored or kept."""
    objective = build_objective(
        OBJECTIVES[options.objective](),
        data,
        dense,
        tokenisation=Tokenisation(),
        batch_tokens=2048,
        length=options.length,
        limit=options.examples,
        parts=(options.parts or parts_for(options.examples)) if race else 1,
        seed=seed,
    )
    widest = max(objective.batches, key=lambda b: b.tokens.input_ids.shape[1])
    share = int(options.cache_gb * 1e9) // len(objective.batches)
    runner = choose_runner(dense, widest.tokens, cache_bytes=share).runner
    evaluator = Evaluator(
        objective, ScoredLosses(dense, objective, runner), Store(None, {}, objective.weights)
    )
    racer = Racer(evaluator, options.error_rate, contests=options.remove)
    side = racer if race else evaluator
    space = SearchSpace.of_blocks(dense.depth)
    mask = space.dense
    begin = time.perf_counter()
    side.evaluate([mask])
    for _ in range(options.remove):
        found = side.evaluate(Contest(space.extensions(mask), winners=1))
        mask = min(found, key=lambda e: e.rank_key).mask
    seconds = time.perf_counter() - begin
    passes = runner.passes
    return Run(mask, passes.tokens, passes.head_tokens, seconds, racer.summary() if race else "")


def main() -> None:
    """Run all draws and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--objective", choices=["nll", "margin"], default="nll")
    parser.add_argument("--remove", type=int, default=7)
    parser.add_argument("--examples", type=int, default=64)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--parts", type=int, help="default: by the number of examples")
    parser.add_argument("--error-rate", type=float, default=0.05)
    parser.add_argument("--data-dir", default="embedded")
    parser.add_argument("--cache-gb", type=float, default=1.0)
    options = parser.parse_args()

    dense = load_dense(options.model, dtype="float32")
    config = OBJECTIVES[options.objective]()
    text = options.objective == "nll"
    everything = load_any(
        config.default_task,
        data_dir=options.data_dir,
        split="validation" if text else None,
    )
    print("draw  same set  token passes: full  raced  factor  head factor  seconds: full  raced")
    factors, same, least = [], 0, inf
    for draw in range(options.draws):
        data = drawn(everything, options.examples, draw)
        exact = greedy(dense, data, options, draw, race=False)
        raced = greedy(dense, data, options, draw, race=True)
        factor = exact.token_passes / raced.token_passes
        heads = exact.head_tokens / raced.head_tokens
        factors.append(factor)
        same += exact.mask == raced.mask
        least = min(least, factor)
        print(
            f"{draw:4d}  {exact.mask == raced.mask!s:8}  {exact.token_passes:18d}  "
            f"{raced.token_passes:.3g}  {factor:5.2f}x  {heads:10.2f}x  "
            f"{exact.seconds:13.1f}  {raced.seconds:5.1f}  {exact.mask} {raced.mask}\n"
            f"      {raced.summary}",
            flush=True,
        )
    print(
        json.dumps(
            {
                "objective": options.objective,
                "examples": options.examples,
                "length": options.length,
                "remove": options.remove,
                "draws": options.draws,
                "same_set": same,
                "mean_factor": round(float(np.mean(factors)), 2),
                "least_factor": round(least, 2),
            }
        )
    )


if __name__ == "__main__":
    main()
