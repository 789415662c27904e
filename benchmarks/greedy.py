"""Greedy search, shoal against the loops that other tools run, round by round in one process.

    python benchmarks/greedy.py --objective nll --dtype float32
    python benchmarks/greedy.py --objective margin --dtype float32

The naive loop for `nll` is one full forward per candidate and sequence with all logits; for
`margin` one full forward per candidate, item and choice. Both sides see the same candidates in
every round, in turn, so a busy machine slows them alike; their losses must agree.
"""

import argparse
import json
import resource
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from shoal.config.objectives import OBJECTIVES
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.data import Tokenisation, encode_choices, encode_corpus, load_any
from shoal.engine.evaluator import Evaluator
from shoal.engine.losses import ScoredLosses
from shoal.engine.selfcheck import choose_runner
from shoal.engine.store import Store
from shoal.models.dense import DenseModel
from shoal.models.load import load_dense
from shoal.models.masked import skipped
from shoal.objectives.build import build_objective


def naive_nll(dense: DenseModel, texts: Sequence[tuple[int, ...]]) -> Callable[[Mask], float]:
    """Mean NLL by one full forward per sequence, all logits."""

    def loss(mask: Mask) -> float:
        losses = []
        with skipped(dense.blocks, mask), torch.inference_mode():
            for text in texts:
                ids = torch.tensor([text])
                losses.append(float(dense.module(ids, labels=ids, use_cache=False).loss))
        return sum(losses) / len(losses)

    return loss


def naive_margin(dense: DenseModel, items: Sequence) -> Callable[[Mask], float]:
    """Margin loss by one full forward per choice, all logits."""

    def score(tokens: tuple[int, ...], scored: int) -> Tensor:
        ids = torch.tensor([tokens])
        table = dense.module(ids, use_cache=False).logits[0].float().log_softmax(-1)
        first = len(tokens) - scored
        return table[torch.arange(first - 1, len(tokens) - 1), ids[0, first:]].mean()

    def loss(mask: Mask) -> float:
        total = 0.0
        with skipped(dense.blocks, mask), torch.inference_mode():
            for item in items:
                scores = [float(score(c.tokens, c.scored)) for c in item.choices]
                right = scores.pop(item.gold)
                total += sum(scores) / len(scores) - right
        return total / len(items)

    return loss


def matmul_speed(dtype: torch.dtype, size: int = 2048, repeats: int = 5) -> float:
    """Best observed FLOP/s of a square product."""
    a = torch.randn(size, size, dtype=dtype)
    best = float("inf")
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - begin)
    return 2 * size**3 / best


def main() -> None:
    """Run the comparison and print it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--objective", choices=["nll", "margin"], default="nll")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--remove", type=int, default=5)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--items", type=int, default=16)
    parser.add_argument("--data-dir", default="embedded")
    parser.add_argument("--cache-gb", type=float, default=4.0)
    options = parser.parse_args()

    dense = load_dense(options.model, dtype=options.dtype)
    config = OBJECTIVES[options.objective]()
    text = options.objective == "nll"
    data = load_any(
        config.default_task, data_dir=options.data_dir, limit=None if text else options.items
    )
    policy = Tokenisation()
    objective = build_objective(
        config,
        data,
        dense,
        tokenisation=policy,
        batch_tokens=2048,
        length=options.length,
        limit=options.blocks,
    )
    if text:
        texts = encode_corpus(
            data, dense.tokenizer, policy, length=options.length, num_blocks=options.blocks
        )
        naive = naive_nll(dense, [t.tokens for t in texts])
    else:
        naive = naive_margin(dense, encode_choices(data, dense.tokenizer, policy))
    share = int(options.cache_gb * 1e9) // len(objective.batches)
    runner = choose_runner(dense, objective.batches[0].tokens, cache_bytes=share).runner
    evaluator = Evaluator(
        objective, ScoredLosses(dense, objective, runner), Store(None, {}, objective.weights)
    )
    space = SearchSpace.of_blocks(dense.depth)
    mask = space.dense
    naive(mask)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rounds = []
    for _ in range(options.remove):
        candidates = space.extensions(mask)
        begin = time.perf_counter()
        expected = [naive(m) for m in candidates]
        middle = time.perf_counter()
        found = [e.mean for e in evaluator.evaluate(candidates)]
        end = time.perf_counter()
        mask = candidates[min(range(len(found)), key=found.__getitem__)]
        gap = max(abs(a - b) for a, b in zip(expected, found, strict=True))
        rounds.append({"naive_s": middle - begin, "shoal_s": end - middle, "gap": gap})
        print(json.dumps({"mask": str(mask), **rounds[-1]}), flush=True)
    seconds = {k: sum(r[k] for r in rounds) for k in ("naive_s", "shoal_s")}
    speed = matmul_speed(dense.dtype)
    linear = sum(p.numel() for p in dense.blocks.layers[0].parameters() if p.dim() == 2)
    head = dense.module.get_output_embeddings().weight.numel()
    per_batch = objective.num_tokens / len(objective.batches)
    flops = 2 * linear * per_batch * runner.passes.blocks
    flops += 2 * head * objective.num_rows / len(objective.batches) * runner.passes.heads
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        json.dumps(
            {
                "objective": objective.expression,
                "dtype": options.dtype,
                "threads": torch.get_num_threads(),
                "tokens": objective.num_tokens,
                **{k: round(v, 1) for k, v in seconds.items()},
                "ratio": round(seconds["naive_s"] / seconds["shoal_s"], 2),
                "largest_gap": max(r["gap"] for r in rounds),
                "block_passes": runner.passes.blocks,
                "naive_block_passes": runner.passes.naive,
                "matmul_gflops": round(speed / 1e9),
                "shoal_over_matmul_bound": round(seconds["shoal_s"] / (flops / speed), 2),
                "peak_memory_gb": round(after / 1e6, 2),
                "peak_memory_before_gb": round(before / 1e6, 2),
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
