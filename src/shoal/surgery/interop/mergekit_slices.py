"""Which runs of blocks a mergekit file copies, with a refusal for everything else that it may do.

The fields are those of `mergekit/config.py` in arcee-ai/mergekit.
"""

from typing import Any

from shoal.core.errors import UsageError
from shoal.surgery.interop.text import shown, whole_number

LARGEST = 10**6
"""No model has as many blocks. Larger numbers are refused before anything is counted up to them."""

# What says nothing about blocks. `parameters` is missing on purpose: it may hold a scale.
_NEUTRAL = {"dtype", "out_dtype", "tokenizer_source", "chat_template"}

_ALLOWED = (
    "Allowed is `merge_method: passthrough` with `slices` in ascending order without overlap, each "
    "with one source that holds `model` and `layer_range: [first, end]`, all of the same model."
)


def _refusal(what: str) -> UsageError:
    return UsageError(f"the mergekit file cannot be read as a mask: {what}. {_ALLOWED}")


def _fields(value: Any, what: str, known: set[str], needed: set[str]) -> dict[str, Any]:
    """The fields of a mapping that are set, if all are known and none is missing."""
    if not isinstance(value, dict):
        raise _refusal(f"{what} is {shown(value)}, not a mapping")
    given = {key: entry for key, entry in value.items() if entry is not None}
    if extra := [key for key in given if key not in known]:
        raise _refusal(f"{what} sets {shown(extra[0])}, which does more than leave blocks out")
    if missing := sorted(needed - set(given)):
        raise _refusal(f"{what} has no {missing[0]}")
    return given


def copied_ranges(value: Any) -> list[tuple[int, int]]:
    """The half-open ranges of blocks that a parsed mergekit file copies, ascending.

    Raises:
        UsageError: If the file is no passthrough of one model, or repeats or reorders blocks.
    """
    known = {"slices", "merge_method", "base_model", *_NEUTRAL}
    top = _fields(value, "the file", known, {"slices", "merge_method"})
    if top["merge_method"] != "passthrough":
        raise _refusal(f"merge_method is {shown(top['merge_method'])}")
    if not isinstance(top["slices"], list) or not top["slices"]:
        raise _refusal(f"slices is {shown(top['slices'])}, not a list with at least one entry")
    ranges: list[tuple[int, int]] = []
    models = [top["base_model"]] if "base_model" in top else []
    for number, part in enumerate(top["slices"], 1):
        sources = _fields(part, f"slice {number}", {"sources"}, {"sources"})["sources"]
        if not isinstance(sources, list) or len(sources) != 1:
            raise _refusal(f"slice {number} has the sources {shown(sources)}, not exactly one")
        keys = {"model", "layer_range"}
        source = _fields(sources[0], f"the source of slice {number}", keys, keys)
        models.append(source["model"])
        ranges.append(_range(source["layer_range"], number, ranges))
    for model in models:
        if not isinstance(model, str) or "+" in model:
            raise _refusal(f"the model is {shown(model)}, not a plain name without a LoRA")
        if model != models[0]:
            raise _refusal(f"it takes layers of two models, {shown(models[0])} and {shown(model)}")
    return ranges


def _range(value: Any, number: int, before: list[tuple[int, int]]) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2 or not all(map(whole_number, value)):
        raise _refusal(f"slice {number} has the layer_range {shown(value)}, not two whole numbers")
    first, end = value
    if end > LARGEST:
        raise _refusal(f"slice {number} ends beyond block {LARGEST}, further than any model")
    if first < 0 or first >= end:
        raise _refusal(
            f"slice {number} has the layer_range {shown(value)}, which holds no block: the second "
            f"number is not included, so block {shown(first)} alone is [n, n + 1]"
        )
    if before and first < before[-1][1]:
        raise _refusal(
            f"slice {number} begins at block {shown(first)} after one that ends before "
            f"{before[-1][1]}, so blocks are repeated or reordered"
        )
    return first, end
