"""Reading a mask back from the config of a nemotron-nas checkpoint.

The form can say more than a mask: parts replaced by linear maps, widths that differ by block,
sinks, experts. NVIDIA's own models use that; here it is refused rather than overlooked. The fields
are those of `vllm/model_executor/models/nemotron_nas.py` in vllm-project/vllm and of NVIDIA's
`block_config.py`.
"""

from collections.abc import Mapping
from typing import Any

from shoal.core.errors import UsageError
from shoal.core.mask import Mask, Part, Site
from shoal.surgery.interop.text import shown

SECTIONS = {"attention": Part.ATTN, "ffn": Part.MLP}
"""The two entries of a block."""

_WIDTHS = {
    "attention": ("n_heads_in_group", "num_key_value_heads"),
    "ffn": ("ffn_mult", "intermediate_size", "hidden_act"),
}


def from_nemotron(config: Mapping[str, Any], depth: int | None = None) -> Mask:
    """Read the mask from the content of a nemotron-nas `config.json`.

    Args:
        config: The parsed file.
        depth: Number of blocks of the dense model, if known: another one is refused.

    Raises:
        UsageError: If the file is not in that form, says more than a mask can, or is for another
            depth.
    """
    entries = entries_of(config)
    if depth is not None and len(entries) != depth:
        raise UsageError(
            f"the config has block_configs for {len(entries)} blocks, but the model has {depth}. "
            "Use the model that it was made from."
        )
    removed = set()
    widths: dict[str, tuple[int, object]] = {}
    for layer, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise _refusal(layer, f"is {shown(entry)}, not a mapping")
        for name, value in entry.items():
            if name not in SECTIONS and _set(value):
                raise _refusal(layer, f"sets {shown(name)}")
        for section, part in SECTIONS.items():
            if _is_no_op(layer, section, entry.get(section)):
                removed.add(Site(layer, part))
                continue
            for name in _WIDTHS[section]:
                value = entry[section].get(name)
                first, other = widths.setdefault(f"{section}.{name}", (layer, value))
                if value != other:
                    raise _refusal(
                        layer,
                        f"has {section}.{name} {shown(value)} where block {first} has "
                        f"{shown(other)}",
                    )
    return Mask(len(entries), frozenset(removed))


def entries_of(config: Mapping[str, Any]) -> list[Any]:
    """The list `block_configs`, one entry per block.

    Raises:
        UsageError: If there is none, or its length is not the number of blocks.
    """
    entries = config.get("block_configs") if isinstance(config, Mapping) else None
    if not isinstance(entries, list) or not entries:
        raise UsageError(
            'the config is not in the nemotron-nas form: it needs a list "block_configs" with one '
            f"entry per block, got {shown(entries)}."
        )
    count = config.get("num_hidden_layers")
    if isinstance(count, bool) or count != len(entries):
        raise UsageError(
            f"the config has {len(entries)} block_configs and num_hidden_layers is {shown(count)}; "
            "the numbers must be equal."
        )
    return entries


def _is_no_op(layer: int, section: str, value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("no_op"), bool):
        raise _refusal(layer, f"has no {section}.no_op that is true or false")
    for name, entry in value.items():
        if name != "no_op" and name not in _WIDTHS[section] and _set(entry):
            raise _refusal(layer, f"sets {section}.{name} to {shown(entry)}")
    return bool(value["no_op"])


def _set(value: object) -> bool:
    return value is not None and value is not False


def _refusal(layer: int, what: str) -> UsageError:
    return UsageError(
        f"the block_configs cannot be read as a mask: block {layer} {what}. Allowed are entries "
        "that make attention or ffn a no-op and are otherwise alike."
    )
