"""The model card of a pruned checkpoint."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from shoal.core.layout import Layout
from shoal.core.mask import Mask, Part, Site
from shoal.core.plan import Plan
from shoal.core.version import __version__

_LOAD = """\
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("PATH_OR_HUB_ID")
tokenizer = AutoTokenizer.from_pretrained("PATH_OR_HUB_ID")
```

Neither shoal nor remote code is needed."""

_LIMITS = """\
The blocks were chosen for one objective. Abilities that it does not measure may be lost, and text
that is generated token by token usually suffers more than single answers. Nothing was trained
after the removal. The limits and biases of the dense model remain."""


@dataclass(frozen=True)
class Result:
    """One line of the results table; both numbers come from the same code.

    Attributes:
        name: Task and metric, e.g. `arc_easy, accuracy`.
        dense: The dense model's number.
        pruned: The pruned model's number.
    """

    name: str
    dense: float
    pruned: float


def model_card(
    dense_id: str,
    revision: str | None,
    mask: Mask,
    plan: Plan | None,
    parameters_before: int,
    parameters_after: int,
    results: Sequence[Result] | None = None,
    layout: Layout | None = None,
    licence: str | Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
) -> str:
    """Write a model card in Markdown, with metadata for the hub.

    Args:
        dense_id: Hub id of the dense model, or another name for it; only a hub id is linked.
        revision: Its commit.
        mask: The removed blocks.
        plan: How they were found, if that is known.
        parameters_before: Parameters of the dense model.
        parameters_after: Parameters of the pruned model.
        results: Measured numbers.
        layout: What the pruned model's blocks are made of.
        licence: The dense model's licence, or its licence fields.
        notes: Further sentences on the weights.
    """
    metadata: dict[str, Any] = {}
    if licence:
        metadata |= {"license": licence} if isinstance(licence, str) else dict(licence)
    if "/" in dense_id:
        metadata["base_model"] = dense_id
    metadata |= {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["pruning", "depth-pruning", "shoal"],
    }
    name = dense_id.rpartition("/")[2]
    layout = Layout.of(mask) if layout is None else layout
    kept, gone = len(layout), _gone(mask)
    saved = 1 - parameters_after / max(parameters_before, 1)
    at = f" at revision `{revision}`" if revision else ""
    parts = [
        "---\n" + yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True) + "---",
        f"# {name} without {gone}",
        f"`{dense_id}`{at}, with {gone} removed by shoal {__version__}.",
        "Blocks are counted from 0, as in the dense model.",
        *_explained(layout),
        f"| | |\n|---|---|\n| removed | {_listed(mask)} |\n| kept | {_listed(layout.slots)} |\n"
        f"| blocks | {mask.depth} -> {kept} |\n"
        f"| parameters | {parameters_before:,} -> {parameters_after:,} ({-saved:+.1%}) |",
        *notes,
        *_how(plan),
        *_table(results),
        "## How to load it\n\n" + _LOAD,
        "## Limits\n\n" + _LIMITS,
    ]
    return "\n\n".join(parts) + "\n"


def _listed(things: Iterable[object]) -> str:
    return ", ".join(map(str, things)) or "none"


def _gone(mask: Mask) -> str:
    """What is removed, counted."""
    if mask.whole_blocks_only:
        return f"{mask.num_blocks} of {mask.depth} blocks"
    counts = [(mask.num_blocks, "block", "blocks")]
    for part, one, many in ((Part.ATTN, "attention", "attentions"), (Part.MLP, "MLP", "MLPs")):
        counts.append((sum(s.part is part for s in mask), one, many))
    parts = [f"{n} {one if n == 1 else many}" for n, one, many in counts if n]
    return ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1]


def _explained(layout: Layout) -> list[str]:
    """What a reader must know of blocks that are made of two, or hold less than they seem to."""
    lines = []
    if layout.fused:
        lines.append(
            "A block such as `3.attn+4.mlp` is made of the attention of one dense block and the "
            "MLP of another; its outputs are exactly those of the two."
        )
    if layout.zeroed:
        zeroed = _listed(Site(s.attn, s.zeroed) for s in layout.zeroed if s.zeroed)
        lines.append(
            f"The output projections of {zeroed} are zero: these sub-layers have no effect, but "
            "their weights are in the files and they cost time."
        )
    return lines


def _how(plan: Plan | None) -> list[str]:
    if plan is None:
        return []
    rows: list[tuple[str, Any]] = [("objective", plan.objective)]
    if plan.search:
        rows.append(("search", ", ".join(f"{k}={v}" for k, v in plan.search.items())))
    if plan.data:
        # Nested records stand in full in the plan.
        plain = {k: v for k, v in plan.data.items() if not isinstance(v, dict)}
        rows.append(("calibration data", ", ".join(f"{k}={v}" for k, v in plain.items())))
    if plan.score:
        dense = "" if plan.score.dense is None else f", dense {plan.score.dense:.4f}"
        rows.append(("loss", f"{plan.score.mean:.4f}{dense}, {plan.score.examples} examples"))
    rows += [("masks evaluated", plan.evaluations), ("seed", plan.seed)]
    body = "\n".join(f"| {name} | {value} |" for name, value in rows if value is not None)
    return ["## How the blocks were chosen\n\n| | |\n|---|---|\n" + body]


def _table(results: Sequence[Result] | None) -> list[str]:
    if not results:
        return []
    lines = [
        f"| {r.name} | {r.dense:.4f} | {r.pruned:.4f} | {r.pruned - r.dense:+.4f} |"
        for r in results
    ]
    head = "| | dense | pruned | difference |\n|---|---|---|---|\n"
    return ["## Results\n\n" + head + "\n".join(lines)]
