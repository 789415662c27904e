"""The tables and figures of docs/when_is_pruning_safe.md, from the JSON of diagnosis.py.

python benchmarks/diagnosis_table.py study.json --figures docs/img
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from shoal.diagnosis.records import Layerwise
from shoal.report.diagnosis.layers import ends_figure, layers_figure
from shoal.report.style import light_grid, new_figure, save, styled

COLOURS = {"margin": "#c05621", "nll": "#2b6cb0", "trajectory": "#2f855a"}
SPACES = {
    "hidden_gap": ("hidden", "-"),
    "logit_gap": ("logit", "--"),
    "probability_gap": ("probability", ":"),
}

Row = dict[str, Any]
Mean = dict[str, Any]
Pick = Callable[[Row], Mean | None]


def forced(name: str) -> Pick:
    """A quantity along the dense model's text."""
    return lambda row: row["teacher_forced"]["overall"].get(name)


def options(part: str, name: str = "", scoring: str = "options") -> Pick:
    """A number of the multiple-choice task."""

    def pick(row: Row) -> Mean | None:
        found = next((c for c in row["choices"] if c["scoring"] == scoring), None)
        return None if found is None else (found[part].get(name) if name else found[part])

    return pick


def retrieval(part: str) -> Pick:
    """A number of mean-pooled retrieval."""
    return lambda row: next(r for r in row["retrieval"] if r["pooling"] == "mean")[part]


def run(part: str, name: str, decoding: str, which: str = "pruned") -> Pick:
    """A number of a free run."""

    def pick(row: Row) -> Mean | None:
        found = next(r for r in row["runs"] if r["name"] == which and r["decoding"] == decoding)
        return found[part].get(name) if name else found[part]

    return pick


PANELS: dict[str, dict[str, Pick]] = {
    "safe_text": {
        "KL per token along the dense text, nats": forced("kl"),
        "share of tokens whose likeliest differs": forced("flip"),
        "step of the first different token, greedy": run("first_divergence", "", "greedy"),
        "surprise beyond the dense text, sampled, nats": run("text_change", "surprise", "sampled"),
        "texts in a loop beyond the dense model's, greedy": run("text_change", "looping", "greedy"),
        "different pairs of tokens, greedy": run("other_text", "distinct_2", "greedy"),
    },
    "safe_answers": {
        "items whose chosen option stays": options("kept"),
        "change of accuracy": options("accuracy_change"),
        "items whose chosen letter stays": options("kept", scoring="letters"),
        "KL within the options' texts, nats": options("inside", "subspace_kl"),
        "KL within the letters, nats": options("inside", "subspace_kl", "letters"),
        "nearest neighbours that stay": retrieval("overlap"),
    },
}
CONTROLS: dict[str, Pick] = {
    "step of the first different token, greedy": run(
        "first_divergence", "", "greedy", "bfloat16 copy"
    ),
    "surprise beyond the dense text, sampled, nats": run(
        "text_change", "surprise", "sampled", "dense, another seed"
    ),
    "texts in a loop beyond the dense model's, greedy": run(
        "text_change", "looping", "greedy", "bfloat16 copy"
    ),
    "different pairs of tokens, greedy": run("other_text", "distinct_2", "greedy", "bfloat16 copy"),
}


LETTERS: dict[str, Pick] = {
    "mass of the letters": options("inside", "subspace_mass", "letters"),
    "KL of the vocabulary there": options("vocabulary", "kl", "letters"),
    "dense accuracy by letter": options("accuracy_dense", scoring="letters"),
}


def cell(mean: Mean | None) -> str:
    """A mean with its interval."""
    if mean is None:
        return ""
    return f"{mean['value']:.3g} [{mean['low']:.2g}, {mean['high']:.2g}]"


def table(rows: list[Row], columns: dict[str, Pick]) -> str:
    """One line per plan."""
    lines = [
        "| objective | k | " + " | ".join(columns) + " |",
        "|---|---|" + "---|" * len(columns),
    ]
    for row in rows:
        cells = " | ".join(cell(pick(row)) for pick in columns.values())
        lines.append(f"| {row['objective']} | {row['k']} | {cells} |")
    return "\n".join(lines)


def verdicts(rows: list[Row]) -> str:
    """Masks and verdicts."""
    lines = ["| objective | k | mask | choice | retrieval | short | long |", "|---" * 7 + "|"]
    for row in rows:
        levels = {v["use"]: v["level"] + "" * v["settled"] for v in row["verdicts"]}
        open_ends = {v["use"]: "" if v["settled"] else " (?)" for v in row["verdicts"]}
        cells = [levels[use] + open_ends[use] for use in ("choice", "retrieval", "short", "long")]
        lines.append(
            f"| {row['objective']} | {row['k']} | `{row['mask']}` | " + " | ".join(cells) + " |"
        )
    return "\n".join(lines)


def panels(rows: list[Row], wanted: dict[str, Pick]) -> Any:
    """One panel per number, one line per objective, controls dashed."""
    with styled():
        figure = new_figure(10.5, 6.0)
        axes = figure.subplots(2, 3).flat
        for ax, (title, pick) in zip(axes, wanted.items(), strict=True):
            for objective, colour in COLOURS.items():
                some = [(r["k"], pick(r)) for r in rows if r["objective"] == objective]
                known = [(k, m) for k, m in some if m is not None]
                k = [k for k, _ in known]
                ax.plot(k, [m["value"] for _, m in known], "o-", color=colour, label=objective)
                low, high = ([m[end] for _, m in known] for end in ("low", "high"))
                ax.fill_between(k, low, high, color=colour, alpha=0.15, linewidth=0)
            control = CONTROLS.get(title)
            found = control(rows[0]) if control else None
            if found is not None:
                ax.axhline(found["value"], color="#1f2933", linestyle="--", linewidth=1)
            ax.set_title(title, fontsize=8)
            ax.set_xticks(sorted({r["k"] for r in rows}))
            ax.set_xlabel("blocks removed")
            light_grid(ax)
        figure.axes[0].legend(fontsize=7)
        return figure


def spaces(rows: list[Row]) -> Any:
    """The three spaces side by side: against k, and step by step."""
    with styled():
        figure = new_figure(10.5, 3.4)
        axes = figure.subplots(1, 3, sharey=True)
        for ax, (objective, colour) in zip(axes, COLOURS.items(), strict=True):
            some = [r for r in rows if r["objective"] == objective]
            for name, (label, style) in SPACES.items():
                means = [r["teacher_forced"]["overall"][name] for r in some]
                k = [r["k"] for r in some]
                ax.plot(
                    k, [m["value"] for m in means], style, marker="o", color=colour, label=label
                )
                low, high = ([m[end] for m in means] for end in ("low", "high"))
                ax.fill_between(k, low, high, color=colour, alpha=0.12, linewidth=0)
            ax.set_title(objective, fontsize=9)
            ax.set_xlabel("blocks removed")
            ax.set_xticks(sorted({r["k"] for r in rows}))
            ax.legend(fontsize=7)
            light_grid(ax)
        axes[0].set_ylabel("1 − cosine along the dense text")
        return figure


def steps(rows: list[Row], k: int) -> Any:
    """Divergence step by step along the dense model's text."""
    with styled():
        figure = new_figure(10.5, 3.2)
        axes = figure.subplots(1, 3, sharey=True)
        for ax, (objective, colour) in zip(axes, COLOURS.items(), strict=True):
            (row,) = [r for r in rows if r["objective"] == objective and r["k"] == k]
            curve = row["teacher_forced"]["steps"]["kl"]
            ax.plot(curve["steps"], curve["value"], color=colour)
            ax.fill_between(
                curve["steps"], curve["low"], curve["high"], color=colour, alpha=0.15, linewidth=0
            )
            ax.set_title(f"{objective}, {k} blocks removed", fontsize=9)
            ax.set_xlabel("token after the prompt")
            light_grid(ax)
        axes[0].set_ylabel("KL(dense || pruned), nats")
        return figure


def depth_table(sites: list[Row]) -> str:
    """What sites 1 to the last but one do, dropped alone: how many attenuate, how it grows."""
    lines = [
        "| sites | where | logit < hidden | p > logit | hidden | logit | p | attenuation | r |"
    ]
    lines.append("|---" * 9 + "|")
    for kind in ("attn", "mlp", "block"):
        some = [s for s in sites if (s["site"].partition(".")[2] or "block") == kind][1:-1]
        for where in ("normed", "raw", "final"):
            names = (*SPACES, "attenuation", "kl")
            values = {n: np.array([s[where][n]["value"] for s in some]) for n in names}
            h, z, p = (values[n] for n in SPACES)
            growth = np.corrcoef(np.arange(len(some)), np.log(values["kl"]))[0, 1]
            middle = " | ".join(f"{np.median(v):.3g}" for v in (h, z, p, values["attenuation"]))
            counts = f"{(z < h).sum()} of {len(some)} | {(p > z).sum()}"
            lines.append(f"| {kind} | {where} | {counts} | {middle} | {growth:.2f} |")
    return "\n".join(lines)


def softmax_table(rows: list[Row]) -> str:
    """Amplification at temperature 1, and the leading term and bound of KL over KL."""
    lines = ["| objective | k | ratio | predicted | amplified | T3 / KL | bound / KL |"]
    lines.append("|---" * 7 + "|")
    for row in rows:
        (at,) = [a for a in row["amplification"] if a["temperature"] == 1.0]
        kl, estimate, bound = (
            row["teacher_forced"]["overall"][n]["value"] for n in ("kl", "kl_estimate", "kl_bound")
        )
        lines.append(
            f"| {row['objective']} | {row['k']} | {at['ratio']:.2f} | {at['predicted']:.2f} "
            f"| {at['amplified']:.2f} | {estimate / kl:.2f} | {bound / kl:.1f} |"
        )
    return "\n".join(lines)


def runs_table(rows: list[Row]) -> str:
    """Every free run; the controls are the same for all plans."""
    lines = ["| objective | k | run | first | KL after | flips | ended | looping | surprise more |"]
    lines.append("|---" * 9 + "|")
    for row in rows:
        for one in row["runs"]:
            if one["control"] and row is not rows[0]:
                continue
            text, change = one["other_text"], one["text_change"]
            means = (one["first_divergence"], one["after"].get("kl"), one["flip_rate"])
            means = (*means, text["ended"], text["looping"], change["surprise"])
            cells = " | ".join("" if m is None else f"{m['value']:.2f}" for m in means)
            name = f"{one['name']}, {one['decoding']}"
            lines.append(f"| {row['objective']} | {row['k']} | {name} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    """Print the tables and draw the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("json", type=Path)
    parser.add_argument("--figures", type=Path)
    given = parser.parse_args()
    study = json.loads(given.json.read_text())
    order = list(COLOURS)
    rows = sorted(study["rows"], key=lambda r: (order.index(r["objective"]), r["k"]))
    print(verdicts(rows))
    for wanted in PANELS.values():
        print("\n" + table(rows, wanted))
    gaps = {name: forced(name) for name in (*SPACES, "attenuation", "subspace_kl", "kl_estimate")}
    print("\n" + table(rows, gaps))
    print("\n" + table(rows[:1], CONTROLS))
    print("\n" + table(rows, LETTERS))
    for more in (depth_table(study["layerwise"]["sites"]), softmax_table(rows), runs_table(rows)):
        print("\n" + more)
    if given.figures is not None:
        given.figures.mkdir(parents=True, exist_ok=True)
        layers = Layerwise.model_validate(study["layerwise"])
        drawn = {name: panels(rows, wanted) for name, wanted in PANELS.items()}
        drawn |= {"safe_spaces": spaces(rows), "safe_steps": steps(rows, 3)}
        drawn |= {"safe_layers": layers_figure(layers), "safe_layers_end": ends_figure(layers)}
        for name, figure in drawn.items():
            if figure is not None:
                save(figure, given.figures / name)


if __name__ == "__main__":
    main()
