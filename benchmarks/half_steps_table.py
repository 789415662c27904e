"""The tables and the figure of docs/half_steps.md, from the JSON of half_steps.py.

python benchmarks/half_steps_table.py half.json --figure docs/img/half_steps
"""

import argparse
import json
from pathlib import Path
from typing import Any

from shoal.report.style import ACCENT, MAIN, light_grid, new_figure, save, styled

COLOURS = {"block": ACCENT, "half": MAIN}
STYLES = {"greedy": "-", "one_shot": "--"}

Rows = list[dict[str, Any]]


def table(rows: Rows, objective: str, data: str, search: str) -> str:
    """Loss above dense for each k, blocks beside half steps allowed."""
    lines = [
        "| k | blocks | 95% | half steps allowed | 95% | difference | 95% | masks |",
        "|---|---|---|---|---|---|---|---|",
    ]
    chosen = [
        r for r in rows if (r["objective"], r["data"], r["search"]) == (objective, data, search)
    ]
    for k in sorted({r["k"] for r in chosen}):
        cells, masks = [], []
        for space in ("block", "half", "half - block"):
            row = next(r for r in chosen if r["k"] == k and r["space"] == space)
            cells += [f"{row['above']:+.3f}", f"[{row['low']:+.3f}, {row['high']:+.3f}]"]
            masks += [f"`{row['mask']}`"] * (space in COLOURS)
        lines.append(f"| {k} | " + " | ".join(cells) + f" | {' / '.join(masks)} |")
    return "\n".join(lines)


def figure(rows: Rows, out: Path) -> None:
    """Loss above dense against k: one panel per objective and data set."""
    with styled():
        objectives = list(dict.fromkeys(r["objective"] for r in rows))
        grid = [
            (o, list(dict.fromkeys(r["data"] for r in rows if r["objective"] == o)))
            for o in objectives
        ]
        columns = max(len(data) for _, data in grid)
        drawn = new_figure(3.4 * columns, 2.9 * len(grid))
        axes = drawn.subplots(len(grid), columns, squeeze=False)
        for line, (objective, data) in zip(axes, grid, strict=True):
            for ax, name in zip(line, data, strict=False):
                panel(ax, [r for r in rows if r["objective"] == objective and r["data"] == name])
                ax.set_title(f"searched by {objective}: {name}", fontsize=8)
            line[0].set_ylabel("above the dense model")
        axes[0][0].legend(fontsize=7)
        out.parent.mkdir(parents=True, exist_ok=True)
        save(drawn, out)


def panel(ax: Any, rows: Rows) -> None:
    """One line per space and search, with a band for greedy."""
    for search, style in STYLES.items():
        for space, colour in COLOURS.items():
            some = [r for r in rows if r["search"] == search and r["space"] == space]
            some.sort(key=lambda r: int(r["k"]))
            k = [r["k"] for r in some]
            label = f"{'blocks' if space == 'block' else 'half steps allowed'}, {search}"
            ax.plot(k, [r["above"] for r in some], style, color=colour, label=label)
            if search == "greedy":
                low, high = [r["low"] for r in some], [r["high"] for r in some]
                ax.fill_between(k, low, high, color=colour, alpha=0.15, linewidth=0)
    light_grid(ax)
    ax.set_xlabel("blocks fewer")


def main() -> None:
    """Print the tables and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("json", type=Path)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    rows: Rows = json.loads(options.json.read_text())
    for row in (r for r in rows if r["objective"] == "singles"):
        print(f"- {row['data']}: best {row['space']} `{row['mask']}` {row['loss']:.4f}")
    rows = [r for r in rows if r["objective"] != "singles"]
    keys = dict.fromkeys((r["objective"], r["data"], r["search"]) for r in rows)
    for objective, data, search in keys:
        print(f"\n### {objective}, {search}, {data}\n")
        print(table(rows, objective, data, search))
    if options.figure:
        figure(rows, options.figure)


if __name__ == "__main__":
    main()
