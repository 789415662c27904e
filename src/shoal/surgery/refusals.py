"""What cannot be pruned, and why: found from the config alone, before any work."""

from typing import Any

from transformers import PreTrainedConfig

from shoal.core.errors import UnsupportedModelError, UsageError
from shoal.core.layout import Layout
from shoal.models.discover import depth_of, text_config
from shoal.surgery import rules
from shoal.surgery.fields import donors, origins, read, views

_INDEX_BOUND = (
    "each block computes with its own index, so only blocks at the end can go: "
    "the kept blocks must be 0, 1, 2, ... without a gap"
)


def why_not(config: PreTrainedConfig) -> list[str]:
    """What limits the pruning of a model, one sentence each; empty where any block can go.

    Args:
        config: The model's config; a nested text config is found.
    """
    text = text_config(config)
    kind = text.model_type
    notes = []
    if kind in rules.NEVER:
        notes.append(f"no block can be removed: {rules.NEVER[kind]}")
    if _packed(text):
        notes.append("no block can be removed: tensors outside the blocks are packed by block")
    if _index_bound(text):
        notes.append(_INDEX_BOUND)
    if kind in rules.FIRST_STAYS:
        notes.append(f"block 0 must stay: {rules.FIRST_STAYS[kind]}")
    if kind in rules.LAST_STAYS:
        notes.append(f"the last block must stay: {rules.LAST_STAYS[kind]}")
    needed = sorted({d for d in donors(config) if d is not None})
    if needed:
        notes.append(f"later blocks reuse the keys and values of {_these(needed)}")
    if "shared" in (read(text, "indexer_types") or ()):
        notes.append('the first kept block must have the indexer type "full"')
    if read(text, "ple_layer_ids"):
        notes.append("blocks with hashed embeddings can go only from the end of ple_layer_ids")
    if _is_hybrid(text):
        notes.append("at least one block with attention must stay")
    if kind == "jamba" or (read(text, "moe_layer_interval") or 1) > 1:
        notes.append("its schedule of block kinds is periodic and must stay so")
    return notes


def check_request(config: PreTrainedConfig, layout: Layout) -> None:
    """Refuse what can be refused by looking at the dense config and the layout.

    Raises:
        UsageError: If the mask is for another depth, or removes everything.
        UnsupportedModelError: If the model type does not allow it.
    """
    depth, mask = depth_of(config), layout.mask
    if mask.depth != depth:
        raise UsageError(
            f"the mask {mask} is for {mask.depth} blocks, but the model has {depth}. "
            "Use a mask or a plan that was made for this model."
        )
    if not mask.kept:
        raise UsageError(f"the mask {mask} removes all {depth} blocks. Keep at least one.")
    if reason := _reason(config, layout):
        raise UnsupportedModelError(f"{config.model_type} cannot be pruned by {mask}: {reason}.")


def check_expressed(dense: PreTrainedConfig, pruned: PreTrainedConfig, layout: Layout) -> None:
    """Refuse a pruned config that, once saved and read, says something else than the dense one.

    Config classes recompute and rewrite fields when they are read, so the copy goes through JSON
    form once and then every view of every kept block must be what it was.

    Raises:
        UnsupportedModelError: If anything differs, with the field and the reason.
    """
    mask, kind = layout.mask, dense.model_type
    try:
        read_back = type(pruned)(**pruned.to_diff_dict())
        after, after_donors = views(read_back), donors(read_back)
        depth = depth_of(read_back)
    except (ValueError, KeyError, TypeError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise UnsupportedModelError(
            f"{kind} cannot be pruned by {mask}: its config class refuses the result: {reason}"
        ) from error
    if depth != len(layout):
        raise UnsupportedModelError(
            f"{kind} cannot be pruned by {mask}: its config then asks for {depth} blocks, "
            f"not {len(layout)}."
        )
    before = views(dense)
    for name, values in before.items():
        for new, old in enumerate(origins(layout, name)):
            if name in after and after[name][new] != values[old]:
                raise UnsupportedModelError(
                    f"{kind} cannot be pruned by {mask}: block {old} has {name} = "
                    f'"{values[old]}", but at its new place {new} the config can only say '
                    f'"{after[name][new]}". Choose other blocks.'
                )
    wanted = donors(dense)
    found = [None if d is None else layout.attn[d] for d in after_donors]
    if found != [wanted[i] for i in layout.attn]:
        raise UnsupportedModelError(
            f"{kind} cannot be pruned by {mask}: kept blocks reuse the keys and values of a "
            f"removed one. Keep {_these(sorted({d for d in wanted if d is not None}))}."
        )


def _reason(config: PreTrainedConfig, layout: Layout) -> str | None:
    mask, text = layout.mask, text_config(config)
    # What these rules are about belongs to the attention of a block.
    kept, kind = layout.attn, text.model_type
    if not mask.removed:
        return None
    if layout.fused and text.is_heterogeneous:
        return "its blocks differ in settings of their own, so they cannot be fused"
    if kind in rules.NEVER:
        return rules.NEVER[kind]
    if _packed(text):
        return "tensors outside the blocks are packed by block (per-layer embeddings)"
    if _index_bound(text) and kept != tuple(range(len(kept))):
        return _INDEX_BOUND
    if kind in rules.FIRST_STAYS and kept[0] != 0:
        return f"block 0 must stay, because {rules.FIRST_STAYS[kind]}"
    if kind in rules.LAST_STAYS and kept[-1] != mask.depth - 1:
        return f"block {mask.depth - 1} must stay, because {rules.LAST_STAYS[kind]}"
    indexers = read(text, "indexer_types")
    if indexers and indexers[kept[0]] == "shared":
        return f"block {kept[0]} would come first, but it shares the indexer of an earlier block"
    hashed = [i - 1 for i in read(text, "ple_layer_ids") or ()]
    stay = [i in kept for i in hashed]
    if stay != sorted(stay, reverse=True):
        return f"of {_these(hashed)}, whose hash tables depend on their order, only the last can go"
    if _is_hybrid(text) and not any(_attends(_kinds(text)[i]) for i in kept):
        attending = [i for i, k in enumerate(_kinds(text)) if _attends(k)]
        return (
            "no block with attention would stay, and generation with a cache needs one: "
            f"keep one of {_these(attending)}"
        )
    return None


def _packed(text: PreTrainedConfig) -> bool:
    return bool(read(text, "hidden_size_per_layer_input"))


def _index_bound(text: PreTrainedConfig) -> bool:
    return text.model_type == "diffllama" or bool(read(text, "scale_attn_by_inverse_layer_idx"))


def _kinds(text: PreTrainedConfig) -> list[Any]:
    return list(read(text, "layer_types") or read(text, "layers_block_type") or ())


def _attends(kind: str) -> bool:
    return kind in ("attention", "hybrid") or (
        kind.endswith("_attention") and kind != "linear_attention"
    )


def _is_hybrid(text: PreTrainedConfig) -> bool:
    attends = {_attends(kind) for kind in _kinds(text)}
    return attends == {True, False}


def _these(blocks: list[int]) -> str:
    return ("block " if len(blocks) == 1 else "blocks ") + ", ".join(map(str, blocks))
