"""Config of a Llama model from which attention and MLP sub-layers have been removed.

This file lies beside config.json so that vLLM (started with --trust-remote-code) can read the
entries of `block_configs` by attribute. It defines no model: vLLM brings `DeciLMForCausalLM`.
"""

from typing import Any

from transformers import LlamaConfig


class Entry(dict[str, Any]):
    """A mapping whose keys can be read as attributes, written to JSON like any other."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error


class NemotronNasConfig(LlamaConfig):
    """A Llama config with one entry per block, `attention` and `ffn`, in `block_configs`."""

    model_type = "nemotron-nas"

    def __init__(self, block_configs: list[dict[str, Any]] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.block_configs = [
            Entry({part: Entry(values) for part, values in block.items()})
            for block in block_configs or ()
        ]
