"""Reading the per-block fields of a config."""

from typing import Any

from transformers import PreTrainedConfig

from shoal.core.layout import Layout
from shoal.core.mask import Part
from shoal.models.discover import depth_of, text_config
from shoal.surgery import rules
from shoal.surgery.periodic import marked


def own_name(config: PreTrainedConfig, name: str) -> str:
    """The name under which a config stores a field that also has an alias."""
    return str(config.attribute_map.get(name, name))


def read(config: PreTrainedConfig, name: str) -> Any:
    """A field's value; None where the config has none, or where it differs by block."""
    if name in (config.per_layer_attributes or ()):
        return None
    return getattr(config, name, None)


def is_stored(config: PreTrainedConfig, name: str) -> bool:
    """Whether a field can be set, as opposed to being computed from others."""
    attribute = getattr(type(config), own_name(config, name), None)
    return not isinstance(attribute, property) or attribute.fset is not None


def overrides(config: PreTrainedConfig) -> dict[int, dict[str, Any]]:
    """The per-block overrides of a heterogeneous config, by block."""
    if not config.is_heterogeneous:
        return {}
    return {int(i): value for i, value in config.to_dict()["per_layer_config"].items()}


def stored_lists(config: PreTrainedConfig) -> dict[str, list[Any] | tuple[Any, ...]]:
    """The stored lists with one entry per block, each once, under its own name."""
    found = {}
    for name in rules.SLICED:
        value = read(config, name)
        if isinstance(value, list | tuple) and is_stored(config, name):
            found[own_name(config, name)] = value
    return found


def per_layer_fields(config: PreTrainedConfig) -> dict[str, str]:
    """Which fields of a config depend on the blocks, and what pruning does with each.

    Args:
        config: The model's config; a nested text config is found.

    Returns:
        Field name -> `sliced`, `renumbered`, `recounted`, `made explicit`, `fitted`,
        `rescaled` or `set to 0`.
    """
    text = text_config(config)
    found = dict.fromkeys(stored_lists(text), "sliced")
    for names, handling in (
        (rules.INDEXED, "renumbered"),
        (rules.EXPLICIT, "made explicit"),
        ((*rules.LEADING, *rules.TRAILING, *sum(rules.SECTIONS, ())), "recounted"),
        (rules.RESCALED, "rescaled"),
        (rules.PREDICTORS, "set to 0"),
    ):
        for name in names:
            if read(text, name) is not None and is_stored(text, name):
                found.setdefault(own_name(text, name), handling)
    for names in marked(text, depth_of(config)):
        found |= dict.fromkeys(names, "fitted")
    if text.is_heterogeneous:
        found["per_layer_config"] = "renumbered"
    return found


def origins(layout: Layout, name: str) -> tuple[int, ...]:
    """For each block of the pruned model, the dense block that a field's entry comes from."""
    return layout.mlp if rules.side(name) is Part.MLP else layout.attn


def sparse_blocks(config: PreTrainedConfig, depth: int) -> list[bool] | None:
    """Which blocks hold experts, where that follows from a period; None where it does not."""
    step = read(config, "decoder_sparse_step")
    if isinstance(step, int):
        dense = set(read(config, "mlp_only_layers") or ())
        return [i not in dense and step > 0 and (i + 1) % step == 0 for i in range(depth)]
    return None


def views(config: PreTrainedConfig) -> dict[str, list[Any]]:
    """What a config says about each block, however it says it: view name -> one entry per block.

    Raises:
        ValueError: If the config class finds its own fields inconsistent.
    """
    text, depth = text_config(config), depth_of(config)
    found: dict[str, list[Any]] = {name: list(value) for name, value in stored_lists(text).items()}
    for name in rules.DERIVED:
        value = read(text, name)
        if isinstance(value, list | tuple) and len(value) == depth:
            found[name] = list(value)
    sparse = sparse_blocks(text, depth)
    if sparse is not None:
        found["blocks with experts"] = list(sparse)
    found |= {names[0]: list(marks) for names, marks in marked(text, depth).items()}
    for names in rules.SECTIONS:
        counts = [read(text, name) for name in names]
        if all(isinstance(count, int) for count in counts):
            found["section"] = [
                n for n, count in zip(names, counts, strict=True) for _ in range(count)
            ]
    return found


def donors(config: PreTrainedConfig) -> list[int | None]:
    """For each block, the block whose keys and values it reuses; None where it has its own.

    Raises:
        ValueError: If a block would reuse what no block produces.
    """
    text, depth = text_config(config), depth_of(config)
    if not read(text, "num_kv_shared_layers"):
        return [None] * depth
    stored = {
        kind: i
        for i, (kind, mode) in enumerate(zip(text.layer_types, text.kv_sharing_modes, strict=True))
        if mode == "store"
    }
    return [
        stored[kind] if mode == "reuse" else None
        for kind, mode in zip(text.layer_types, text.kv_sharing_modes, strict=True)
    ]
