"""mergekit's passthrough slices: which runs of blocks of one model are copied, in which order.

The format is defined by arcee-ai/mergekit: the fields by `mergekit/config.py`, their meaning by
`mergekit/plan.py` (`plan_slice`, `plan_layer`) and `mergekit/merge.py` (`_model_out_config`), model
names and dtypes by `mergekit/common.py`. A `layer_range` is half-open, and one that is empty is
accepted there and yields no layer. The file does not say how deep the dense model is, so whatever
was cut off at its end cannot be seen; files written here carry the depth in a comment.
"""

import json
import re
from collections.abc import Mapping

from shoal.core.errors import UsageError, unknown_name
from shoal.core.mask import Mask
from shoal.surgery.interop.mergekit_slices import copied_ranges
from shoal.surgery.interop.text import parse_yaml, shown

DTYPES = ("bfloat16", "float16", "float32")
"""The floating point dtypes that mergekit knows."""

_DEPTH = re.compile(r"^# dense depth: (\d{1,6})\s*$", re.MULTILINE)


def to_mergekit(
    mask: Mask, model: str, dtype: str, per_layer_fields: Mapping[str, str] | None = None
) -> str:
    """Write a mask as the YAML file that `mergekit-yaml` reads.

    Args:
        mask: Whole blocks only.
        model: Hub id, `id@revision`, or folder of the dense model.
        dtype: One of `DTYPES`.
        per_layer_fields: Config fields that depend on the blocks and how pruning treats them, as
            from `shoal.surgery.fields.per_layer_fields`. mergekit knows none of them, so the file
            warns of them.

    Raises:
        UsageError: If mergekit cannot express the mask, the model's name or the dtype.
    """
    if not mask.whole_blocks_only:
        raise UsageError(
            f"the mask {mask} removes parts of blocks; mergekit copies whole blocks only. Write it "
            "in another format, or search with whole blocks as the granularity."
        )
    if not mask.kept:
        raise UsageError(
            f"the mask {mask} removes all {mask.depth} blocks, and mergekit would write a model "
            "without layers. Keep at least one."
        )
    dtype = dtype.removeprefix("torch.")
    if dtype not in DTYPES:
        raise unknown_name("dtype", dtype, DTYPES)
    name = _scalar(model)
    lines = [
        f"# Written by shoal: keeps {len(mask.kept)} of {mask.depth} blocks, mask {mask}.",
        f"# dense depth: {mask.depth}",
        "# A layer_range is half-open: its last number is the first block that is not copied.",
        *_warning(per_layer_fields or {}),
        "slices:",
    ]
    for first, end in _runs(mask.kept):
        lines += [
            "  - sources:",
            f"      - model: {name}",
            f"        layer_range: [{first}, {end}]",
        ]
    return "\n".join([*lines, "merge_method: passthrough", f"dtype: {dtype}", ""])


def from_mergekit(text: str, depth: int | None = None) -> Mask:
    """Read a passthrough file of one model as the mask of the blocks that it leaves out.

    Args:
        text: The file's content.
        depth: Number of blocks of the dense model. May be None for files that shoal has written.

    Raises:
        UsageError: If the file does more than leave blocks out, or the depth is unknown or wrong.
    """
    ranges = copied_ranges(parse_yaml(text))
    noted = _DEPTH.search(text)
    if noted is not None and depth not in (None, int(noted[1])):
        raise UsageError(
            f"the mergekit file was written for {noted[1]} blocks, but the model has {depth}. "
            "Use the model that it was made for."
        )
    if depth is None:
        if noted is None:
            raise UsageError(
                f"the mergekit file ends with block {ranges[-1][1] - 1} and does not say how many "
                "blocks the dense model has. Give its depth."
            )
        depth = int(noted[1])
    if ranges[-1][1] > depth:
        raise UsageError(
            f"layer_range {list(ranges[-1])} goes beyond the model: it has {depth} blocks, so the "
            f"second number is at most {depth}."
        )
    kept = {block for first, end in ranges for block in range(first, end)}
    return Mask.of(depth, set(range(depth)) - kept)


def _runs(kept: tuple[int, ...]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for block in kept:
        if runs and runs[-1][1] == block:
            runs[-1] = (runs[-1][0], block + 1)
        else:
            runs.append((block, block + 1))
    return runs


def _scalar(model: str) -> str:
    if not model or not model.isprintable() or model != model.strip() or '"' in model:
        raise UsageError(
            f"{shown(model)} cannot be written as a mergekit model. Give a hub id or a folder "
            "without quotes, line breaks or outer spaces."
        )
    # mergekit splits a name at + (what follows is a LoRA) and at @ (a revision).
    if "+" in model or model.count("@") > 1:
        raise UsageError(
            f"mergekit would misread the model {shown(model)}: it takes what follows + for a LoRA "
            "and what follows @ for a revision. Rename the folder or link it under another name."
        )
    plain = re.fullmatch(r"[A-Za-z/.][\w./@-]*", model, re.ASCII)
    if plain and isinstance(parse_yaml(model), str):
        return model
    return json.dumps(model, ensure_ascii=False)


def _warning(fields: Mapping[str, str]) -> list[str]:
    if not fields:
        return []
    listed = ", ".join(f"{_one_line(name)} ({_one_line(how)})" for name, how in fields.items())
    return [
        "# WARNING: of all that depends on the blocks in config.json, mergekit corrects only the",
        "# number of layers. What it writes needs these changes by hand, or use `shoal export`:",
        f"# {listed}",
    ]


def _one_line(text: str) -> str:
    return " ".join(c if c.isprintable() else " " for c in text.split())
