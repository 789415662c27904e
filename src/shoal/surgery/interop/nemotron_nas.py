"""The nemotron-nas form: a Llama checkpoint whose config says which sub-layers are missing.

It is defined by vllm-project/vllm, `vllm/model_executor/models/nemotron_nas.py`
(`DeciLMForCausalLM`), which reads of every entry of `block_configs`: `attention.no_op`,
`attention.n_heads_in_group` (query heads per key-value head), `ffn.no_op` and `ffn.ffn_mult`. A
part that is a no-op has neither weights nor a norm. Tensor names are Llama's.

Blocks keep their number. One that is removed whole stays as an entry whose two parts are no-ops, as
in NVIDIA's own Llama-Nemotron models; vLLM passes the hidden state through and allots no cache to
it, the file needs no renumbering, and the mask can be read back.

The residual stream begins at the first attention: vLLM hands every later norm the sum so far and
the last output, and has no sum before any attention has run. An MLP ahead of the first attention
would reach its norm with nothing to add, so such a mask is refused.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.core.errors import UnsupportedModelError, UsageError
from shoal.core.mask import Mask, Part, Site
from shoal.surgery.interop.llama_shaped import check_llama_shaped, ffn_mult

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

MODEL_TYPE, ARCHITECTURE = "nemotron-nas", "DeciLMForCausalLM"
"""What `config.json` calls the form."""

CONFIGURATION_FILE = "configuration_nemotron_nas.py"
"""The Python file that must lie beside `config.json`: transformers has no class for the form."""

PARTS = {
    Part.ATTN: ("input_layernorm", "self_attn"),
    Part.MLP: ("post_attention_layernorm", "mlp"),
}
"""The modules of a Llama block that belong to each sub-layer."""

_COPIED = (
    "vocab_size",
    "hidden_size",
    # NVIDIA's files set the next two to null; the class of transformers accepts numbers only.
    "intermediate_size",
    "num_key_value_heads",
    "num_hidden_layers",
    "num_attention_heads",
    "head_dim",
    "hidden_act",
    "max_position_embeddings",
    "initializer_range",
    "rms_norm_eps",
    "use_cache",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "tie_word_embeddings",
    "attention_dropout",
)

_BLOCK_TENSOR = re.compile(r"model\.layers\.(\d+)\.([^.]+)\.(.+)")


def check_mask(mask: Mask) -> None:
    """Refuse the masks with which vLLM fails.

    Raises:
        UsageError: If no attention stays, or an MLP stays ahead of the first attention.
    """
    gone = mask.sublayers
    kept = [i for i in range(mask.depth) if Site(i, Part.ATTN) not in gone]
    if not kept:
        raise UsageError(
            f"the mask {mask} removes every attention; vLLM takes the number of key-value heads "
            "from the first that stays. Keep at least one."
        )
    early = [i for i in range(kept[0]) if Site(i, Part.MLP) not in gone]
    if early:
        raise UsageError(
            f"the mask {mask} keeps {early[0]}.mlp ahead of the first attention, {kept[0]}.attn; "
            "vLLM's nemotron-nas code has no residual to add there and fails. Keep "
            f"{early[0]}.attn, or remove {early[0]} whole."
        )


def block_configs(config: "PreTrainedConfig", mask: Mask) -> list[dict[str, Any]]:
    """One entry per block of the dense model, for the config of the nemotron-nas form.

    Args:
        config: The dense model's config.
        mask: What is removed.

    Raises:
        UsageError: If the mask is for another depth, or vLLM fails with it.
        UnsupportedModelError: If the model is no plain Llama.
    """
    check_llama_shaped(config)
    if mask.depth != config.num_hidden_layers:
        raise UsageError(
            f"the mask {mask} is for {mask.depth} blocks, but the model has "
            f"{config.num_hidden_layers}. Use a mask that was made for this model."
        )
    check_mask(mask)
    # null where nothing is left: llama.cpp's converter tells no-ops by it and not by `no_op`.
    group = config.num_attention_heads // config.num_key_value_heads
    mult = ffn_mult(config.intermediate_size, config.hidden_size)
    entries = []
    for layer in range(mask.depth):
        attention, ffn = (Site(layer, part) in mask.sublayers for part in (Part.ATTN, Part.MLP))
        entries.append(
            {
                "attention": {
                    "no_op": attention,
                    "n_heads_in_group": None if attention else group,
                    "replace_with_linear": False,
                },
                "ffn": {
                    "no_op": ffn,
                    "ffn_mult": None if ffn else mult,
                    "replace_with_linear": False,
                },
            }
        )
    return entries


def nemotron_config(config: "PreTrainedConfig", mask: Mask) -> dict[str, Any]:
    """The content of `config.json` in the nemotron-nas form.

    The file needs `CONFIGURATION_FILE` beside it, with the text of `configuration_code`.

    Args:
        config: The dense model's config.
        mask: What is removed.

    Raises:
        UsageError: If the mask is for another depth, or vLLM fails with it.
        UnsupportedModelError: If the model is no plain Llama.
    """
    entries = block_configs(config, mask)
    dense = config.to_dict()
    rope = dict(dense["rope_parameters"])
    written: dict[str, Any] = {
        "architectures": [ARCHITECTURE],
        "model_type": MODEL_TYPE,
        "auto_map": {
            "AutoConfig": f"{CONFIGURATION_FILE.removesuffix('.py')}.NemotronNasConfig",
        },
        **{name: dense[name] for name in _COPIED if name in dense},
        "attention_bias": False,
        "mlp_bias": False,
        # Written in both ways: older releases of vLLM and transformers know only the second.
        "rope_parameters": rope,
        "rope_theta": rope["rope_theta"],
    }
    if rope["rope_type"] != "default":
        written["rope_scaling"] = {k: v for k, v in rope.items() if k != "rope_theta"}
    if dense.get("dtype") is not None:
        written["torch_dtype"] = dense["dtype"]
    return {**written, "block_configs": entries}


def configuration_code() -> str:
    """The text of `CONFIGURATION_FILE`."""
    return Path(__file__).with_name(CONFIGURATION_FILE).read_text(encoding="utf-8")


def keep_tensor(name: str, mask: Mask) -> bool:
    """Whether a tensor of the Llama checkpoint belongs into the file; names do not change.

    Args:
        name: The tensor's name in the dense checkpoint.
        mask: What is removed.

    Raises:
        UnsupportedModelError: If a block holds something that a Llama block does not.
    """
    found = _BLOCK_TENSOR.fullmatch(name)
    if found is None:
        return True
    if "rotary_emb" in name:  # Tables that old checkpoints store and every reader computes.
        return False
    part = next((part for part, modules in PARTS.items() if found[2] in modules), None)
    if part is None or int(found[1]) >= mask.depth:
        raise UnsupportedModelError(
            f"{name} is no tensor of a Llama model with {mask.depth} blocks, so it has no place in "
            "the nemotron-nas form."
        )
    return Site(int(found[1]), part) not in mask.sublayers
