"""One head pass, side by side: the product alone, tiles, full logits, torch's fused loss.

python benchmarks/head.py
"""

import statistics
import time
from collections.abc import Callable

import torch
from torch.nn import functional

from shoal.models.head import Head

ROWS, WIDTH, VOCABULARY, REPEATS = 1022, 576, 49_152, 7


def median_seconds(work: Callable[[], object]) -> float:
    """Median time of some repeats after one warm-up."""
    work()
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def main() -> None:
    """Print one line per dtype and way."""
    for dtype in (torch.float32, torch.bfloat16):
        hidden = torch.randn(1, ROWS, WIDTH, dtype=dtype)
        weight = (torch.randn(VOCABULARY, WIDTH) * 0.05).to(dtype)
        targets = torch.randint(VOCABULARY, (ROWS,))
        rows = torch.arange(ROWS)
        states = hidden[0]
        scorer = Head((), weight).score(hidden, rows)
        logits = torch.empty(ROWS, VOCABULARY, dtype=dtype)
        ways: dict[str, Callable[[], object]] = {
            "product alone": lambda s=states, w=weight, z=logits: torch.mm(s, w.T, out=z),
            "shoal's tiles": lambda c=scorer, r=rows, t=targets: c.token_logprobs(r, t),
            "full logits": lambda s=states, w=weight, t=targets: functional.cross_entropy(
                (s @ w.T).float(), t, reduction="none"
            ),
        }
        if hasattr(functional, "linear_cross_entropy"):
            ways["torch linear_cross_entropy"] = lambda s=states, w=weight, t=targets: (
                functional.linear_cross_entropy(s, w, t, reduction="none")
            )
        with torch.inference_mode():
            for name, work in ways.items():
                print(f"{dtype!s:16} {name:28} {median_seconds(work):.3f} s")


if __name__ == "__main__":
    main()
