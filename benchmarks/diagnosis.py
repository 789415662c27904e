"""When is pruning safe: one model, plans from several objectives, diagnosed at several depths.

    python benchmarks/diagnosis.py smollm2-135m --data-dir DATA --work WORK --json study.json

Greedy search over whole blocks under the margin of arc_easy, the NLL of wikitext2, and the
divergence along the dense model's own chat answers to GSM8K questions; then `shoal.diagnose` of
what each search passes through, on other questions. Everything is kept in WORK, so running the
script again goes on where it stopped. DATA needs GSM8K's test part in full, of which the diagnosis
reads the first questions and the search items 200 to 231.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import shoal
from shoal.core.mask import Mask
from shoal.core.plan import Plan, Score
from shoal.data import load_prompts
from shoal.diagnosis.records import Diagnosis
from shoal.models.load import load_dense

CALIBRATION = slice(200, 232)
"""Questions that the trajectory is taken on; the diagnosis reads the first ones."""

GAPS = ("hidden_gap", "logit_gap", "probability_gap")

SEARCHES: dict[str, dict[str, Any]] = {
    "margin": {"objective": "margin", "task": "arc_easy", "limit": 64},
    "nll": {"objective": "nll", "task": "wikitext2", "limit": 8},
    "trajectory": {"objective": {"name": "trajectory", "chat": True}, "limit": 32},
}


def questions(options: argparse.Namespace) -> Path:
    """The calibration questions as a file of their own."""
    path: Path = options.work / "gsm8k_calibration.jsonl"
    data = load_prompts("gsm8k", data_dir=options.data_dir, purpose="report")
    rows = [{"prompt": i.prompt, "answer": i.answers[0]} for i in data.items[CALIBRATION]]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def greedy_path(folder: Path, depth: int) -> dict[int, tuple[float, Mask]]:
    """The best mask of every size that a greedy search saw, which are those it passed through."""
    rows = [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]
    seen = [(row["loss"], Mask.parse(row["mask"], depth)) for row in rows]
    counts = sorted({len(mask) for _, mask in seen})
    return {k: min((s for s in seen if len(s[1]) == k), key=lambda s: s[0]) for k in counts}


def plans(options: argparse.Namespace, dense: Any) -> dict[tuple[str, int], Plan]:
    """Search under every objective, and take a plan of every size asked for."""
    found = {}
    for name in options.objectives:
        values = SEARCHES[name]
        task = {"task": str(questions(options))} if name == "trajectory" else {}
        result = shoal.search(
            dense,
            remove=max(options.sizes),
            granularity="block",
            search="greedy",
            data_dir=options.data_dir,
            run_dir=options.work / f"search-{name}",
            store=options.work / f"{name}.sqlite",
            **(values | task),
        )
        whole = result.plan
        for k, (loss, mask) in greedy_path(options.work / f"search-{name}", dense.depth).items():
            score = whole.score and Score(
                mean=loss, dense=whole.score.dense, examples=whole.score.examples
            )
            found[name, k] = whole.model_copy(update={"mask": mask, "score": score})
    return found


def row(objective: str, k: int, found: Diagnosis) -> dict[str, Any]:
    """What the page about the study shows of one diagnosis."""
    values = found.model_dump(
        mode="json", include={"teacher_forced", "amplification", "choices", "retrieval", "verdicts"}
    )
    runs = found.free_runs.model_dump(mode="json")["runs"] if found.free_runs else []
    for run in runs:
        del run["steps"], run["diverged"]
        for part in ("before", "after"):
            run[part] = {name: run[part][name] for name in ("kl",) if name in run[part]}
    forced = values["teacher_forced"]
    del forced["short"]
    forced["steps"] = {name: forced["steps"][name] for name in ("kl", *GAPS)}
    return {
        "objective": objective,
        "k": k,
        "mask": str(found.other.mask),
        "seconds": sum(found.seconds.values()),
        "runs": runs,
        **values,
    }


def sites(found: Diagnosis) -> Any:
    """What the page shows of every site alone, which is the same for all plans."""
    if found.layerwise is None:
        return {}
    values = found.layerwise.model_dump(mode="json")
    for site in values["sites"]:
        site["removed"] = False
        for variant in ("normed", "raw", "final"):
            known = site[variant]
            wanted = ("kl", "subspace_gap", "attenuation", *GAPS)
            site[variant] = {name: known[name] for name in wanted if name in known}
    return values


def rounded(value: Any) -> Any:
    """The same with five digits of every number."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {name: rounded(v) for name, v in value.items()}
    return [rounded(v) for v in value] if isinstance(value, list) else value


def main() -> None:
    """Search, diagnose, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 3, 5, 7])
    parser.add_argument("--objectives", nargs="+", default=list(SEARCHES))
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    dense = load_dense(options.model, dtype=options.dtype)
    chosen = plans(options, dense)
    rows: list[dict[str, Any]] = []
    for k in options.sizes:
        for objective in options.objectives:
            result = shoal.diagnose(
                dense,
                plan=chosen[objective, k],
                chat=True,
                data_dir=options.data_dir,
                out=options.work / f"{objective}-{k}",
                store=options.work / "parts.sqlite",
            )
            found = result.diagnosis
            rows.append(row(objective, k, found))
            levels = ", ".join(f"{v.use} {v.level}" for v in found.verdicts)
            print(f"{objective} {k} {found.other.mask}: {levels}", flush=True)
            text = json.dumps(rounded({"rows": rows, "layerwise": sites(found)}))
            options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
