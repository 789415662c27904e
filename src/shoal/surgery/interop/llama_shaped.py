"""Which models vLLM's nemotron-nas code computes exactly: those of plain Llama maths.

Read off `vllm/model_executor/models/nemotron_nas.py` and `llama.py` in vllm-project/vllm.
"""

from typing import TYPE_CHECKING, Any

from shoal.core.errors import UnsupportedModelError
from shoal.surgery.interop.text import shown

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

FFN_STEP = 256
"""vLLM rounds every MLP width that it reads from `ffn_mult` up to a multiple of this."""

ARCHITECTURES = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM"}
"""Model type -> the one class of it that is meant."""

ROPE_TYPES = ("default", "linear", "llama3")
"""Rotary embeddings that vLLM and transformers compute alike from the config alone."""


def check_llama_shaped(config: "PreTrainedConfig") -> None:
    """Refuse every model that vLLM would compute otherwise once written as nemotron-nas.

    Args:
        config: The dense model's config.

    Raises:
        UnsupportedModelError: With everything that stands against it.
    """
    if reasons := _reasons(config):
        raise UnsupportedModelError(
            f"{config.model_type} cannot be written in the nemotron-nas form: "
            f"{'; '.join(reasons)}. The form is for plain Llama models; export whole blocks as an "
            "ordinary checkpoint instead."
        )


def intermediate_size(ffn_mult: float, hidden_size: int) -> int:
    """The MLP width that vLLM makes of `ffn_mult`: two thirds of the product, rounded up."""
    return -(-int(2 * ffn_mult * hidden_size / 3) // FFN_STEP) * FFN_STEP


def ffn_mult(width: int, hidden_size: int) -> float:
    """The `ffn_mult` from which vLLM gets exactly this MLP width back.

    Raises:
        UnsupportedModelError: If there is none, because the width is no multiple of 256.
    """
    value = 3 * width / (2 * hidden_size)
    # The product may come out a hair too small and is then rounded up to the width all the same.
    if width < 1 or intermediate_size(value, hidden_size) != width:
        raise UnsupportedModelError(
            f"an MLP width of {width} cannot be written in the nemotron-nas form: it knows "
            f"multiples of {FFN_STEP} only. Export whole blocks as an ordinary checkpoint instead."
        )
    return value


def _reasons(config: "PreTrainedConfig") -> list[str]:
    kind = config.model_type
    if kind not in ARCHITECTURES:
        return [f"the model type must be one of {', '.join(ARCHITECTURES)}"]
    # Reading a field that differs by block raises, so nothing else may be read.
    if getattr(config, "is_heterogeneous", False):
        return ["its blocks have configs of their own"]
    wrong = []

    def need(name: str, allowed: tuple[Any, ...]) -> None:
        value = getattr(config, name, None)
        if value not in allowed:
            first = "unset" if allowed[0] is None else shown(allowed[0])
            wrong.append(f"{name} must be {first}, got {shown(value)}")

    for name in config.architectures or ():
        if name != ARCHITECTURES[kind]:
            wrong.append(f"the architecture must be {ARCHITECTURES[kind]}, got {shown(name)}")
    need("hidden_act", ("silu",))
    for name in ("attention_bias", "mlp_bias", "qkv_bias", "bias"):
        need(name, (False, None))
    for name in ("sliding_window", "layer_types", "quantization_config"):
        need(name, (None,))
    rope = getattr(config, "rope_parameters", None)
    if not isinstance(rope, dict) or rope.get("rope_type") not in ROPE_TYPES:
        wrong.append(f"rope_type must be one of {', '.join(ROPE_TYPES)}, got {shown(rope)}")
    elif rope.get("partial_rotary_factor", 1) != 1:
        wrong.append("the rotary embedding must cover the whole head")
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    if groups < 1 or heads % groups:
        wrong.append(f"{heads} attention heads cannot share {groups} key-value heads evenly")
    if config.intermediate_size < 1 or config.intermediate_size % FFN_STEP:
        wrong.append(
            f"intermediate_size must be a multiple of {FFN_STEP}, got {config.intermediate_size}"
        )
    return wrong
