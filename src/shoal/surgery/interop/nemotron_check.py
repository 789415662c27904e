"""Checking a written nemotron-nas folder against its own `config.json`.

vLLM fails on a tensor that it does not expect and says nothing of one that it misses, so both are
looked for here, in the headers of the weight files alone.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.core.errors import UsageError, VerificationError
from shoal.core.mask import Mask, Part, Site
from shoal.models.source import weight_files
from shoal.surgery.interop.llama_shaped import intermediate_size
from shoal.surgery.interop.nemotron_nas import ARCHITECTURE, MODEL_TYPE, check_mask
from shoal.surgery.interop.nemotron_read import entries_of, from_nemotron
from shoal.surgery.interop.text import parse_json, shown
from shoal.surgery.stored import read_header

Shape = tuple[int, ...]


def check_nemotron(folder: Path) -> Mask:
    """Check that a folder holds what its config asks for: every tensor, well shaped, none besides.

    Args:
        folder: The written checkpoint.

    Returns:
        The mask that its config states.

    Raises:
        UsageError: If config or weight files are missing or malformed, or vLLM fails with the mask.
        VerificationError: If the tensors are not those of the config.
    """
    file = folder / "config.json"
    if not file.is_file():
        raise UsageError(f"{folder} holds no config.json.")
    config = parse_json(file.read_text(encoding="utf-8"))
    mask = from_nemotron(config)
    check_mask(mask)
    if config.get("model_type") != MODEL_TYPE or config.get("architectures") != [ARCHITECTURE]:
        raise VerificationError(
            f"{file} says model_type {shown(config.get('model_type'))} and architectures "
            f"{shown(config.get('architectures'))}; vLLM needs {MODEL_TYPE} and [{ARCHITECTURE}]."
        )
    module = _config_module(config)
    if not (folder / module).is_file():
        raise VerificationError(f"{folder} lacks {module}, which its config.json names.")
    found: dict[str, Shape] = {}
    for weights in weight_files(folder):
        for tensor in read_header(weights):
            if tensor.name in found:
                raise VerificationError(f"{folder} holds {tensor.name} twice.")
            found[tensor.name] = tensor.shape
    _compare(folder, expected_tensors(config), found, tied=bool(config.get("tie_word_embeddings")))
    return mask


def expected_tensors(config: Mapping[str, Any]) -> dict[str, Shape]:
    """The tensors that vLLM builds from a nemotron-nas config, with their shapes.

    Args:
        config: The parsed `config.json`.

    Raises:
        UsageError: If a field is missing or is no positive number.
    """
    hidden, heads = _count(config, "hidden_size"), _count(config, "num_attention_heads")
    size = hidden // heads if config.get("head_dim") is None else _count(config, "head_dim")
    vocabulary = (_count(config, "vocab_size"), hidden)
    shapes: dict[str, Shape] = {"model.embed_tokens.weight": vocabulary}
    removed = from_nemotron(config).sublayers
    for layer, entry in enumerate(entries_of(config)):
        block = f"model.layers.{layer}"
        if Site(layer, Part.ATTN) not in removed:
            groups = heads // _count(entry["attention"], "n_heads_in_group")
            shapes |= {
                f"{block}.input_layernorm.weight": (hidden,),
                f"{block}.self_attn.q_proj.weight": (heads * size, hidden),
                f"{block}.self_attn.k_proj.weight": (groups * size, hidden),
                f"{block}.self_attn.v_proj.weight": (groups * size, hidden),
                f"{block}.self_attn.o_proj.weight": (hidden, heads * size),
            }
        if Site(layer, Part.MLP) not in removed:
            width = intermediate_size(_positive(entry["ffn"], "ffn_mult"), hidden)
            shapes |= {
                f"{block}.post_attention_layernorm.weight": (hidden,),
                f"{block}.mlp.gate_proj.weight": (width, hidden),
                f"{block}.mlp.up_proj.weight": (width, hidden),
                f"{block}.mlp.down_proj.weight": (hidden, width),
            }
    shapes["model.norm.weight"] = (hidden,)
    if not config.get("tie_word_embeddings"):
        shapes["lm_head.weight"] = vocabulary
    return shapes


def _compare(
    folder: Path, wanted: dict[str, Shape], found: dict[str, Shape], *, tied: bool
) -> None:
    surplus = set(found) - set(wanted)
    if tied:  # vLLM skips the copy of the embeddings that some checkpoints carry.
        surplus.discard("lm_head.weight")
    missing = set(wanted) - set(found)
    shaped = [
        f"{name} {found[name]} instead of {shape}"
        for name, shape in wanted.items()
        if name in found and found[name] != shape
    ]
    problems = [
        f"{len(names)} {what}, {sorted(names)[0]} first"
        for what, names in (("missing", missing), ("not asked for", surplus), ("misshaped", shaped))
        if names
    ]
    if problems:
        raise VerificationError(
            f"the tensors of {folder} are not those of its config: {'; '.join(problems)}. "
            "Write the folder again."
        )


def _config_module(config: Mapping[str, Any]) -> str:
    auto_map = config.get("auto_map")
    name = auto_map.get("AutoConfig") if isinstance(auto_map, dict) else None
    if (
        not isinstance(name, str)
        or name.count(".") != 1
        or not name.replace(".", "").isidentifier()
    ):
        raise VerificationError(
            "config.json names no class in auto_map.AutoConfig in a file beside it, got "
            f"{shown(name)}; vLLM cannot read block_configs without one."
        )
    return name.partition(".")[0] + ".py"


def _positive(config: Mapping[str, Any], name: str) -> float:
    value = config.get(name)
    # The upper bound shuts out infinity, which JSON as Python reads it can hold.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 2**40:
        raise UsageError(f"config.json has {name} {shown(value)}; it must be a positive number.")
    return value


def _count(config: Mapping[str, Any], name: str) -> int:
    value = _positive(config, name)
    if not isinstance(value, int):
        raise UsageError(f"config.json has {name} {shown(value)}; it must be a whole number.")
    return value
