"""Blocks against blocks and half steps: one depth, two search spaces, the same objective.

    python benchmarks/half_steps.py smollm2-135m --data-dir DATA --store h.sqlite --json half.json

For every objective and both spaces: the best single units, the masks that greedy deletion passes
through for k = 1..9, and the one-shot sets of each k; all of them on the calibration data and on
held-out data, with 95% bootstrap intervals of the paired difference. Every loss is kept in the
store, so running the script again goes on where it stopped.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shoal.config.run import RunConfig
from shoal.core.evaluation import Evaluation
from shoal.core.mask import Mask
from shoal.core.space import SearchSpace
from shoal.core.units import Granularity, units_of_granularity
from shoal.engine.artifacts import Artifacts
from shoal.engine.driver import MaskEvaluator
from shoal.models.dense import DenseModel
from shoal.models.load import load_dense
from shoal.pipeline.listener import Listener
from shoal.pipeline.prepare import prepare
from shoal.pipeline.ready import make_ready, open_evaluator

CALIBRATION: dict[str, dict[str, Any]] = {
    "nll": {"objective": "nll", "task": "wikitext2", "limit": 4},
    "margin": {"objective": "margin", "task": "arc_easy", "limit": 64},
}

SINGLES: dict[str, Any] = {"objective": "nll", "task": "wikitext2", "limit": 8}
"""The data on which every single unit is measured."""

HELD_OUT: dict[str, dict[str, Any]] = {
    "wikitext2 test NLL": {"objective": "nll", "task": "wikitext2", "split": "test", "limit": 16},
    "arc_easy test margin": {
        "objective": "margin",
        "task": "arc_easy",
        "split": "test",
        "limit": 100,
    },
    "arc_easy test error": {
        "objective": "accuracy",
        "task": "arc_easy",
        "split": "test",
        "limit": 100,
    },
}


@dataclass(frozen=True)
class Row:
    """One found mask on one data set.

    Attributes:
        objective: What it was searched under.
        search: `greedy` or `one_shot`.
        space: `block` or `half`; `half - block` compares the two.
        k: Blocks fewer.
        mask: The mask.
        data: What it was measured on.
        loss: Mean loss.
        above: Mean loss above the dense model, or above the other space's mask.
        low: Lower end of the interval of that difference.
        high: Upper end.
    """

    objective: str
    search: str
    space: str
    k: int
    mask: str
    data: str
    loss: float
    above: float
    low: float
    high: float


@contextmanager
def evaluator(
    options: argparse.Namespace, dense: DenseModel, values: dict[str, Any]
) -> Iterator[MaskEvaluator]:
    """An evaluator of one objective on one data set, with its losses in the store."""
    config = RunConfig.read(
        {
            **values,
            "remove": 1,
            "data_dir": options.data_dir,
            "length": options.length,
            "allow_calibration_on_test": True,
            "search": {"name": "one_shot"},
        }
    )
    request = prepare(config, dense, report=False)
    artifacts = Artifacts()
    with ExitStack() as stack:
        ready = make_ready(request, Listener(), dense, artifacts)
        opened = open_evaluator(
            stack, request, ready, dense, options.store, artifacts, lambda done, planned: None
        )
        yield opened.evaluator


def search_paths(space: SearchSpace, ask: MaskEvaluator, most: int) -> dict[tuple[str, int], Mask]:
    """The masks of greedy deletion and of one-shot ranking, by search and number of units."""
    found: dict[tuple[str, int], Mask] = {}
    mask = space.dense
    for k in range(1, most + 1):
        rows = ask.evaluate(space.extensions(mask))
        mask = min(rows, key=lambda e: e.rank_key).mask
        found["greedy", k] = mask
        print(f"    greedy {k}: {mask}", flush=True)
    singles = ask.evaluate(space.extensions(space.dense))
    chosen = space.dense
    ranked = iter(sorted(singles, key=lambda e: e.rank_key))
    for k in range(1, most + 1):
        unit = next(e.mask for e in ranked if not e.mask.places & chosen.places)
        chosen = chosen.without(unit.removed)
        found["one_shot", k] = chosen
    return found


def interval(pruned: Evaluation, dense: Evaluation) -> tuple[float, float, float]:
    """Mean paired difference and its 95% bootstrap interval."""
    gaps = np.asarray(pruned.losses) - np.asarray(dense.losses)
    draws = np.random.default_rng(0).integers(len(gaps), size=(4000, len(gaps)))
    low, high = np.quantile(gaps[draws].mean(1), [0.025, 0.975])
    return float(gaps.mean()), float(low), float(high)


def spaces(depth: int) -> dict[str, SearchSpace]:
    """The two search spaces."""
    return {
        name: SearchSpace(depth, units_of_granularity(Granularity(name), depth))
        for name in ("block", "half")
    }


def main() -> None:
    """Search, measure, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--most", type=int, default=9)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--objectives", nargs="+", default=list(CALIBRATION))
    options = parser.parse_args()
    dense = load_dense(options.model, dtype=options.dtype)
    paths: dict[tuple[str, str, str, int], Mask] = {}
    rows: list[Row] = []

    def note(data: str, ask: MaskEvaluator, chosen: Sequence[str]) -> None:
        # Multiple choice is measured at every other depth only, to save time.
        every_k = data == "calibration" or "NLL" in data or "blocks of text" in data
        wanted = {
            key: m for key, m in paths.items() if key[0] in chosen and (every_k or key[3] % 2)
        }
        every = [Mask.dense(dense.depth), *dict.fromkeys(wanted.values())]
        known = {e.mask: e for e in ask.evaluate(every)}
        origin = known[every[0]]
        for (objective, space, search, k), mask in wanted.items():
            above, low, high = interval(known[mask], origin)
            loss = known[mask].mean
            rows.append(Row(objective, search, space, k, str(mask), data, loss, above, low, high))
            blocks = wanted.get((objective, "block", search, k))
            if space == "half" and blocks is not None:
                gap, low, high = interval(known[mask], known[blocks])
                name = "half - block"
                rows.append(Row(objective, search, name, k, str(mask), data, loss, gap, low, high))

    if "nll" in options.objectives:
        with evaluator(options, dense, SINGLES) as ask:
            for name, space in spaces(dense.depth).items():
                best = min(ask.evaluate(space.extensions(space.dense)), key=lambda e: e.rank_key)
                paths["singles", name, "best", 1] = best.mask
            note("8 blocks of text", ask, ["singles"])
            print(*(f"{row.mask} {row.loss:.4f}" for row in rows), flush=True)
    for objective in options.objectives:
        with evaluator(options, dense, CALIBRATION[objective]) as ask:
            for name, space in spaces(dense.depth).items():
                print(f"{objective}, {name}", flush=True)
                for (search, k), mask in search_paths(space, ask, options.most).items():
                    paths[objective, name, search, k] = mask
            note("calibration", ask, [objective])
    for data, values in HELD_OUT.items():
        print(data, flush=True)
        with evaluator(options, dense, values) as ask:
            note(data, ask, ["singles", *options.objectives])
    options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
